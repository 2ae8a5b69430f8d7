// Package envoy serves a view of resources as Envoy's own types: clusters, endpoints, listeners and routes, to Envoys
// and to gRPC clients, without an istiod in between. Names and defaults are those of istiod 1.27, so that whoever reads
// statistics or configuration dumps finds what he knows.
//
// The way of a change:
//
//		view ──keys──▶ mesh ──hosts──▶ scopes ──────▶ collections of the engine
//		               what objects    translate these   one commit of all types
//		               say of hosts    hosts, put
//		                               together what
//		                               they share
//
//	  - mesh.go keeps the objects, decoded, and knows of which hosts a changed one speaks; rules.go does so for those that are rules for hosts.
//	  - view.go says what a host is to the clients of a namespace: service.go the service, policy.go what DestinationRules say of it.
//	  - translate.go makes of a view what clients are told of it. It is pure, as are cluster.go, traffic.go and origination.go (clusters), endpoint.go and locality.go, listener.go,
//	    route.go with http.go, match.go and action.go (routes). names.go and protocol.go are what all of these say alike; encode.go encodes.
//	  - shared.go puts together what hosts share, such as the listener of a port.
//	  - scope.go keeps what clients of one profile are told, and units.go what profiles share; profile.go reads from a client's node what
//	    decides what it is told.
//	  - catalog.go connects these with the view and the engine.
//	  - coverage.go declares which fields have an effect.
package envoy
