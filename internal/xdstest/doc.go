// Package xdstest has both sides of the aggregated discovery service (ADS) for tests: a server with scripted streams, a
// server with streams that the test drives, one with content, and a client.
package xdstest
