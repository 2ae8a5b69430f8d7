// Package translate builds Envoy's resources from a view. It is pure: equal views have equal translations. View is the
// entry; it returns a Translation.
//
//   - Clusters: cluster.go, with traffic.go (connection pool, outliers, load balancing, warm-up), health.go,
//     origination.go and mutual.go (TLS to services).
//   - Endpoints: endpoint.go, in the order of locality.go.
//   - Routes: route.go (virtual hosts), route_context.go (the inputs of a VirtualService), http.go (its routes) with
//     match.go, action.go (redirects, faults, mirrors) and regex.go.
//   - Listeners: listener.go, l4.go (TCP and TLS routes) and claims.go (hosts that compete for a listener); ingress.go
//     for gateways with tls.go, inbound.go for the ports of a workload with secure.go (filters of policies), dns.go.
//   - Secrets: secret.go. Clients on demand: demand.go. Hosts that are withheld from a client: withhold.go.
//
// encode.go writes protobuf of large messages directly. testdata has a golden archive for each rule.
package translate
