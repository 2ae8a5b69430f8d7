package kube

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// With a CRD, the server deletes the objects one by one. The source publishes these deletions together, so that the guard
// judges one loss, however slow the server is. A series without an end is published in parts.
func TestDeletionsOfOneKindAreOneLoss(t *testing.T) {
	for name, row := range map[string]struct {
		objects int
		pause   time.Duration
		whole   bool
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
				s, err := New("k8s://127.0.0.1:1", Settings{})
				require.NoError(t, err)
				r := newRun(s, nil)
				r.started = true
				var entries *stream
				for _, stream := range r.streams {
					if stream.resource() == "serviceentries.networking.istio.io" {
						entries = stream
					}
				}
				published := 0
				parts := map[int]bool{}
				gather := func() {
					if n := len(r.gather(time.Now()).Contents); n > 0 {
						published += n
						parts[n] = true
					}
				}
				for i := range row.objects {
					require.NoError(t, entries.event("DELETED", deletedObject(i)))
					for elapsed := time.Duration(0); elapsed < row.pause; elapsed += time.Millisecond {
						gather()
						time.Sleep(time.Millisecond)
					}
				}
				time.Sleep(time.Second)
				gather()
				require.Equal(t, row.objects, published)
				require.Equal(t, row.whole, parts[row.objects], "%v", parts)
			})
		})
	}
}

// An object that comes back before its deletion is published is no loss, and other objects do not wait.
func TestDeletionThatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New("k8s://127.0.0.1:1", Settings{})
		require.NoError(t, err)
		r := newRun(s, nil)
		r.started = true
		stream := r.streams[0]
		require.NoError(t, stream.event("DELETED", deletedObject(1)))
		require.Empty(t, r.gather(time.Now()).Contents)
		require.LessOrEqual(t, r.gather(time.Now()).Next, time.Second)
		require.NoError(t, stream.event("ADDED", deletedObject(1)))
		require.Len(t, r.gather(time.Now()).Contents, 1)
		time.Sleep(time.Minute)
		require.Empty(t, r.gather(time.Now()).Contents)
	})
}

func deletedObject(i int) []byte {
	return fmt.Appendf(nil, `{"metadata": {"name": "o%d", "namespace": "shop", "resourceVersion": "%d"}}`, i, i+1)
}
