// Package memstore keeps resources in memory: a ConfigStore with optimistic concurrency, a controller that calls event
// handlers in order, and, for servers, immutable snapshots in O(1) with a log of changes.
package memstore
