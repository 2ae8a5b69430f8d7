// Package translate builds Envoy's resources from a view. It is deterministic: equal views have equal translations.
// View is the entry; it returns a Translation.
//
//   - Clusters: cluster.go, with traffic.go (connection pool, outliers, load balancing, warm-up), health.go,
//     origination.go and mutual.go (TLS to services).
//   - Endpoints: endpoint.go, in the order of locality.go.
//   - Routes: route.go (virtual hosts), route_context.go (the inputs of a VirtualService), http.go (its routes) with
//     match.go, route_action.go (redirects, faults, mirrors) and regex.go.
//   - Listeners: listener.go, l4.go (TCP and TLS routes) and listener_claims.go (hosts that compete for a listener);
//     ingress.go for gateways with tls.go, inbound.go for the ports of a workload with policy_filters.go, dns.go.
//   - Secrets: secret.go. Clients on demand: on_demand.go. Services that a client without an identity cannot reach:
//     missing_identity.go.
//
// encode.go writes protobuf of large messages directly. testdata has a golden archive for each rule.
package translate
