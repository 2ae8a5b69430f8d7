// Package sourcetest is what every source must pass: one conformance suite, run against each external system through a
// small Harness that the tests of the source provide.
package sourcetest

import (
	"testing"

	"tributary/resource"
	"tributary/sources"
)

// Harness is an external system with objects in it, none at first. Its methods return when the change is made; they
// need not wait until the source has noticed. They fail the test that the harness was made for if they cannot do as
// they are told.
type Harness interface {
	// Source returns a new source of the system, as a restart of the program makes one.
	Source() sources.Source
	// Key returns the key of the resource that the source is to make of the object called name. The names that the suite
	// uses are short words in lower case.
	Key(name string) resource.Key
	// Put makes the object called name, or changes it: every revision has a content of its own.
	Put(name string, revision int)
	// Delete removes the object called name.
	Delete(name string)
	// Unreachable makes all reads fail, without changing the objects. Restore undoes it.
	Unreachable()
	Restore()
}

// Breaker is a Harness that can make an object invalid, so that it is quarantined: the source publishes a Reject, or
// validation refuses the object. Registries publish no Rejects; their harness is no Breaker.
type Breaker interface {
	Break(name string)
}

// Denier is a Harness that can make the system refuse the source. Restore undoes it.
type Denier interface {
	Deny()
}

// Run runs the suite. start makes a harness for one test; what it needs to stop it registers with t.Cleanup.
func Run(t *testing.T, start func(t *testing.T) Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *rig)
	}{
		{"publishes what is there", publishes},
		{"syncs when there is nothing", syncsEmpty},
		{"follows changes", follows},
		{"publishes nothing new for what is unchanged", unchanged},
		{"withdraws what is gone", withdraws},
		{"runs again without losing anything", runsAgain},
		{"withdraws what went while it did not run", catchesUp},
		{"gives the same versions each time", sameVersions},
		{"holds everything while unreachable", holdsUnreachable},
		{"is not synced before it was reachable", waitsToSync},
		{"holds everything while denied", holdsDenied},
		{"keeps the last good version of what is invalid", keepsLastGood},
		{"is not stopped by what is invalid from the start", startsInvalid},
		{"ends with its context at any time", ends},
		{"follows everything else during a hold", waitsAlone},
		{"ends a hold in spite of restarts and new connections", endsInTurmoil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(t, newRig(t, start(t)))
		})
	}
	t.Run("holds in any order", func(t *testing.T) { anyOrder(t, start) })
}
