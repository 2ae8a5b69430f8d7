// Package sourcetest is the conformance suite of sources: each source runs it against its external system through a
// small Harness of its tests.
package sourcetest
