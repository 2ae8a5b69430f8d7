// Package envoy serves a view of resources as Envoy's own types: clusters, endpoints, listeners and routes, to Envoys
// and to gRPC clients, without an istiod in between. Names and defaults are those of istiod 1.27, so that whoever reads
// statistics or configuration dumps finds what he knows.
//
// The way of a change:
//
//		view ──keys──▶ mesh ──hosts──▶ scopes ──────▶ collections of the engine
//		               what objects    translate these   one commit of all four types
//		               say of hosts    hosts, put
//		                               together what
//		                               they share
//
//	  - mesh.go keeps the objects, decoded, and knows of which hosts a changed one speaks.
//	  - service.go says what a host is to the clients of a namespace.
//	  - translate.go makes of a service what Envoy is told of it: cluster.go, endpoints.go, route.go and listener.go. It is pure.
//	  - scope.go keeps what clients of one profile are told: of each host, and what hosts share, such as the listener of a port.
//	  - profile.go reads from a client's node what decides what it is told.
//	  - catalog.go connects these with the view and the engine.
package envoy
