package kube

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/derive"
)

// With a CRD, the server deletes the objects one by one. The source publishes these deletions together, so that the
// guard judges one loss, however slow the server is. A series without an end is published in parts.
func TestDeletions_OfOneKindAreOneLoss(t *testing.T) {
	for name, row := range map[string]struct {
		objects  int
		pause    time.Duration
		complete bool
	}{
		"two, 60 ms apart":        {2, 60 * time.Millisecond, true},
		"two, 400 ms apart":       {2, 400 * time.Millisecond, true},
		"three hundred":           {300, 3 * time.Millisecond, true},
		"slow etcd":               {20, 450 * time.Millisecond, true},
		"one, then another later": {2, 2 * time.Second, false},
		"without an end":          {100, 300 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run, deleted := startedRun(t, Settings{}, entries)
				published := 0
				parts := map[int]bool{}
				gather := func() {
					if n := len(run.takePending(time.Now()).Contents); n > 0 {
						published += n
						parts[n] = true
					}
				}
				for i := range row.objects {
					require.NoError(t, deleted.applyEvent("DELETED", versionedObject(i, 1)))
					for elapsed := time.Duration(0); elapsed < row.pause; elapsed += time.Millisecond {
						gather()
						time.Sleep(time.Millisecond)
					}
				}
				time.Sleep(time.Second)
				gather()
				require.Equal(t, row.objects, published)
				require.Equal(t, row.complete, parts[row.objects], "%v", parts)
			})
		})
	}
}

// An object that comes back before its deletion is published is no loss, and other objects do not wait.
func TestDeletion_TakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run, stream := startedRun(t, Settings{}, entries)
		require.NoError(t, stream.applyEvent("DELETED", versionedObject(1, 1)))
		require.Empty(t, run.takePending(time.Now()).Contents)
		require.LessOrEqual(t, run.takePending(time.Now()).Next, time.Second)
		require.NoError(t, stream.applyEvent("ADDED", versionedObject(1, 1)))
		require.Len(t, run.takePending(time.Now()).Contents, 1)
		time.Sleep(time.Minute)
		require.Empty(t, run.takePending(time.Now()).Contents)
	})
}

// TestSeries_EveryKind has a series of deletions of each kind with published or derived objects: the groups wait for
// its end, also while other objects of the group change. A group without such objects does not wait.
func TestSeries_EveryKind(t *testing.T) {
	settings := Settings{Derive: &derive.Options{AllServices: true}, Services: &Services{}}
	run, _ := startedRun(t, settings, entries)
	for _, kind := range run.kinds {
		published := kind.prefix != ""
		derived := slices.ContainsFunc(derive.Kinds, func(k derive.Kind) bool { return k.Plural == kind.plural && k.Group == kind.group })
		if !published && !derived {
			continue
		}
		t.Run(kind.resource(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, deleted := startedRun(t, settings, kind.resource())
				for i := range 10 {
					require.NoError(t, deleted.applyEvent("ADDED", versionedObject(i, 1)))
				}
				r.pending = map[string]pending{}
				parts := 0
				gather := func() {
					for _, content := range r.takePending(time.Now()).Contents {
						require.Empty(t, content.Resources)
						if parts++; derived {
							require.NotEqual(t, 1, len(deleted.cache.objects), "a part of the loss was published")
						}
					}
				}
				for i := range 10 {
					require.NoError(t, deleted.applyEvent("DELETED", versionedObject(i, 100)))
					for range 4 {
						gather()
						require.Zero(t, parts, "published after %d deletions", i+1)
						time.Sleep(100 * time.Millisecond)
					}
				}
				time.Sleep(time.Second)
				gather()
				require.Positive(t, parts)
				if published {
					require.NoError(t, deleted.applyEvent("DELETED", versionedObject(11, 100)))
					require.NoError(t, deleted.applyEvent("ADDED", versionedObject(12, 100)))
					require.NotEmpty(t, r.takePending(time.Now()).Contents, "the object that was added waits for the deletion of another")
				}
			})
		})
	}
}

// versionedObject returns an object with the resource version i+version.
func versionedObject(i, version int) []byte {
	return fmt.Appendf(nil, `{"metadata": {"name": "o%d", "namespace": "shop", "resourceVersion": "%d"}}`, i, i+version)
}

// startedRun returns a run that has listed all kinds, and the stream of a resource.
func startedRun(t *testing.T, settings Settings, resource string) (r *run, selected *stream) {
	s, err := New("k8s://127.0.0.1:1", settings)
	require.NoError(t, err)
	r = newRun(s, nil)
	r.started = true
	for _, stream := range r.streams {
		if stream.cache.hasList, stream.cache.seen = true, 1; stream.kind.resource() == resource {
			selected = stream
		}
	}
	return r, selected
}
