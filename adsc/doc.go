// Package adsc is a client of the aggregated discovery service (ADS) of any xDS server: Envoy's control planes, istiod,
// tributary. It keeps one stream open, subscribes to types, passes each response to a handler, and acknowledges the
// resources that the handler accepted. It does not interpret resources and stores none.
//
// Limits:
//   - The removal of a resource that was subscribed to by an alias is not reported.
//   - If a restarted server uses a version again for other content, a state-of-the-world client does not notice.
//   - If a subscription changes from the wildcard to names and back, a response to the first wildcard may arrive after
//     the second change. It counts as a response to the second wildcard.
package adsc
