// Package envoy serves a view of resources as Envoy's own types: clusters, endpoints, listeners, routes and secrets, to Envoys
// and to gRPC clients, without an istiod in between. Names and defaults are those of istiod 1.27, so that whoever reads
// statistics or configuration dumps finds what he knows.
//
// The way of a change:
//
//	view ──keys──▶ mesh ──hosts──▶ scopes ──────▶ collections of the engine
//	               what objects    translate these   one commit of all types
//	               say of hosts    hosts, put
//	                               together what
//	                               they share
//
// What objects say, by host: mesh.go keeps the objects, decoded, and knows of which hosts a changed one speaks; rules.go does so for
// those that are rules for hosts, gateway.go for Gateways, sidecar.go for Sidecars, and telemetry.go for Telemetries. view.go says what a host is
// to the clients of a profile: service.go the
// service, policy.go what DestinationRules say of it, delegate.go what VirtualServices delegate, and seniority.go which of several comes
// first.
//
// Translation, which is pure: translate.go makes of a view what clients are told of it. Clusters are in cluster.go, traffic.go and
// origination.go; endpoints in endpoint.go and locality.go; routes in route.go, http.go, match.go, action.go and headers.go; listeners in
// listener.go and l4.go, and those of gateways in ingress.go; what these log and trace in observation.go, accesslog.go and tracing.go; what is
// encrypted in tls.go and secret.go. way.go says to whom a
// VirtualService speaks and where it leads; names.go, protocol.go and encode.go are what all of these share.
//
// What is kept: scope.go has what clients of one profile are told, shared.go what hosts share there, such as the listener of a port,
// and units.go what profiles share. profile.go reads from a client's node what decides what it is told. catalog.go connects all of this with
// the view and the engine.
//
// coverage.go and coverage_mesh.go declare which fields have an effect. findings.go is what is found while something is translated, by the object of
// which it is, regex.go what
// regular expressions Envoy takes; effect.go tells of all that to people.
package envoy
