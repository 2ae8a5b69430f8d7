// Package xds serves resources by the xDS transport protocol: state of the world and incremental (delta), aggregated
// (ADS) and per type. It knows nothing of what the resources mean.
//
// The unit is the Collection: a type's resources, each encoded once, as an ordered set with a version that is derived
// from the content. A program feeds collections with Apply, and a Catalog says which collection a client is given for
// a type URL. Streams read collections, never the other way round:
//
//   - A state of a collection is immutable and shares with its predecessor all but the pages that changed. A stream
//     remembers the state that it was last sent; what it is to be sent is the difference between two states.
//   - Differences and encoded responses are built once and shared by every stream that goes the same way. What is
//     private to a stream is a header of some hundred bytes, with the nonce.
//   - Nothing is queued. A change rings a stream's bell; when the stream has sent what it was sending, it looks at the
//     newest state. A client that reads slowly, or does not acknowledge, misses intermediate states and delays nobody.
//
// The protocol is Envoy's xds_protocol, "The xDS Transport Protocol" (https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol).
package xds
