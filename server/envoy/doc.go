// Package envoy serves a view of resources as Envoy's own types: clusters, endpoints, listeners, routes and secrets, to Envoys
// and to gRPC clients, without an istiod in between. Names and defaults are those of istiod 1.27, so that readers of
// statistics and configuration dumps find what they know.
//
// How a change travels:
//
//	resources ──keys──▶ index ──hosts──▶ scopes ──────▶ collections of the engine
//	                    what objects     translate these    one commit of all types
//	                    say of hosts     hosts, and join
//	                                     what they share
//
// Package model has profiles, views of hosts and findings. Package index keeps the decoded objects and makes views. Package translate makes
// Envoy's resources of a view, with the logs and the tracing of package telemetry. Package security makes the filters
// that security objects ask for, and package extend patches resources as EnvoyFilters ask. Package coverage declares which fields have an
// effect.
//
// This package connects them with the engine: catalog.go has a scope for each profile, selectors.go divides clients into profiles,
// variant.go those of a profile by the ports that they serve, scope.go has the collections of a profile, shared.go what hosts share,
// demand.go what clients ask for, and cache.go the translations that profiles share. rejected.go keeps what clients reject,
// unenforced.go names security objects that have no effect, and effect.go shows findings to people.
package envoy
