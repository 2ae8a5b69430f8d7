// Package envoy serves a view of resources as Envoy's own types: clusters, endpoints, listeners, routes and secrets, to
// Envoys and to gRPC clients, without an istiod in between. Names and defaults are those of istiod 1.27, so that
// statistics and configuration dumps look familiar.
//
// How a change travels:
//
//	resources ──keys──▶ index ──hosts──▶ scopes ──────▶ collections of the engine
//	                    objects by      translate hosts,    one commit of all types
//	                    host            and join shared
//	                                    resources
//
// Package model has profiles, views of hosts and findings. Package index keeps the decoded objects and builds views.
// Package translate turns a view into Envoy's resources, with the logs and the tracing of package telemetry. Package
// security builds the filters that enforce security objects, and package extend applies EnvoyFilters. Package coverage
// declares which fields have an effect.
//
// This package connects them with the engine:
//   - catalog.go has a scope for each profile, and run.go follows the view. profile_review.go moves clients to other
//     profiles.
//   - scope.go has the collections of a profile, and workload_view.go those of its clients that serve the same ports.
//   - shared.go has the routes that hosts share, and demand.go the resources that clients request one by one. bodies.go
//     and cache.go have the translations that profiles share.
//   - rejected.go finds the objects behind a rejected resource, unenforced.go names security objects without an effect,
//     and effect.go reports findings. budget.go refuses objects that take too much memory.
package envoy
