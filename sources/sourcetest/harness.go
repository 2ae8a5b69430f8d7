package sourcetest

import (
	"testing"

	"tributary/resource"
	"tributary/sources"
)

// Harness is an external system with objects in it, none at first. Its methods return when the change is made; they
// need not wait for the source. They fail the harness's test on an error.
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

// Run runs the suite in parallel with other tests. start makes a harness for one test, and registers its end with
// t.Cleanup. The package's TestMain has to find leaked goroutines.
func Run(t *testing.T, start func(t *testing.T) Harness) {
	t.Parallel()
	for _, rule := range []struct {
		name string
		test func(*testing.T, *rig)
	}{
		{"publishes the objects", publishes},
		{"syncs an empty system", syncsEmpty},
		{"follows changes", follows},
		{"does not publish unchanged objects again", unchanged},
		{"withdraws deleted objects", withdraws},
		{"runs again without losing anything", runsAgain},
		{"withdraws objects deleted before a restart", catchesUp},
		{"gives the same versions each time", sameVersions},
		{"holds everything while unreachable", holdsUnreachable},
		{"is not synced before it was reachable", waitsToSync},
		{"holds everything while denied", holdsDenied},
		{"keeps the last good version of an invalid object", keepsLastGood},
		{"starts despite invalid objects", startsInvalid},
		{"ends with its context at any time", ends},
		{"follows everything else during a hold", waitsAlone},
		{"ends a hold in spite of restarts and new connections", endsInTurmoil},
	} {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			rule.test(t, newRig(t, start(t)))
		})
	}
	t.Run("holds in any order", func(t *testing.T) {
		t.Parallel()
		anyOrder(t, start)
	})
}
