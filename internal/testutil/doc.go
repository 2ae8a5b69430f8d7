// Package testutil has what tests of several packages share: certificates, a log, a listener that can be away, a bound
// of allocations, kills of a process, and the seed of property tests.
package testutil
