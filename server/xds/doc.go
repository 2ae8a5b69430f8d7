// Package xds serves resources by the xDS transport protocol: state of the world and incremental (delta), aggregated
// (ADS) and per type. It does not interpret resources.
//
// The unit is the Collection: a type's resources, each encoded once, as an ordered set with a version derived from the
// content. A program feeds collections with Apply, and a Catalog chooses the collection that a client gets for a type
// URL. Streams read collections, never the other way round:
//
//   - A state of a collection is immutable and shares all but the changed pages with its predecessor. A stream
//     remembers the state that it last sent; the next response is the difference between two states.
//   - Differences and encoded responses are built once and shared by all streams with the same difference. Each stream
//     adds a header of some hundred bytes, with the nonce. Clients that subscribe by name may get a body of their own.
//   - There are no queues. A change wakes a stream; when the stream has sent its current response, it looks at the
//     newest state. A client that reads slowly, or does not acknowledge, misses intermediate states and delays no other
//     client.
//   - A rejected response is not sent again. The client keeps its former version until the resource changes. A type may
//     have another resource for this client (Type.Fallback); the Envoy catalog offers a rejected secret once more.
//
// Where things are:
//
//   - server.go has the services, limits.go and startlimiter.go the limits of clients.
//   - A stream (stream.go) has a goroutine that receives requests (subscription.go, resume.go, missing.go) and one that
//     sends (send.go). review.go asks the catalog again. versions.go compares the versions that a delta client brings.
//   - collection.go and group.go take commits; state.go, page.go and diff.go are the states and their differences.
//   - plan.go, a pure function, makes the next response of a stream from its clientState. run.go encodes entries,
//     body.go and codec.go share and write the bytes.
//   - order.go, preannounce.go and fallback.go delay or replace entries. pace.go and noopthrottle.go delay.
//   - status.go, log.go and metrics.go report; rejected.go keeps rejections.
//
// The protocol is Envoy's xds_protocol, "The xDS Transport Protocol"
// (https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol).
package xds
