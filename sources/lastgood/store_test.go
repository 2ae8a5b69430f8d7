package lastgood

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tributary/internal/testutil"
	"tributary/memstore"
	"tributary/resource"
)

func key(i int) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: fmt.Sprintf("s%04d", i)}
}

// made returns an object with everything that is kept of one.
func made(i int, body string) *resource.Resource {
	return resource.FromBody(resource.Meta{
		Key: key(i), Labels: map[string]string{"app": "a", "": "b"}, Annotations: map[string]string{"note": "", "n": body},
		Created: time.Unix(int64(i), 123).UTC(),
		Origin:  resource.Origin{Source: "rules", Place: fmt.Sprintf("a.yaml:%d", i), Group: "a.yaml", Rules: "host"},
	}, []byte(body))
}

// synced is a table of resources that is complete.
func synced(rs ...*resource.Resource) *memstore.Table {
	t := new(memstore.Table)
	t.Apply(rs, nil)
	t.MarkSynced()
	return t
}

// save has a store at path write table, and stop.
func save(t require.TestingT, path string, table memstore.Reader) {
	s := newStore(path, "rules", nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Run(ctx, table)
	require.Empty(t, s.Status().Error)
	require.Equal(t, table.Snapshot().Revision(), s.Status().Revision)
}

// requireKept checks that what was loaded is what is in a table.
func requireKept(t require.TestingT, table memstore.Reader, kept *Kept) {
	require.NotNil(t, kept)
	var want []*resource.Resource
	for r := range table.Snapshot().All() {
		want = append(want, r)
	}
	require.Equal(t, want, kept.Resources)
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	table := synced(made(1, "one"), made(2, ""), resource.FromBody(resource.Meta{
		Key:    resource.Key{Kind: resource.MeshConfig, Name: "mesh"},
		Origin: resource.Origin{Source: "rules"},
	}, []byte("mesh")), made(3, "after").WithOriginal(resource.FromBody(resource.Meta{
		Key:    resource.Key{Kind: made(3, "").Key().Kind, Namespace: "another", Name: made(3, "").Key().Name},
		Origin: resource.Origin{Source: "rules"},
	}, []byte("before"))))
	save(t, path, table)
	kept, err := newStore(path, "rules", nil).Load()
	require.NoError(t, err)
	requireKept(t, table, kept)
	require.Nil(t, kept.Guard)
	require.WithinDuration(t, time.Now(), kept.Stored, time.Minute)

	kept, err = newStore(path+".missing", "rules", nil).Load()
	require.NoError(t, err)
	require.Nil(t, kept)
}

func TestANoteIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.db")
		table := synced(made(1, "one"))
		// A run of the store that begins with the note that the last one left, and takes up notes while nothing else changes.
		run := func(notes ...string) string {
			s := newStore(path, "rules", nil)
			if kept, err := s.Load(); kept != nil {
				require.NoError(t, err)
				s.SetNote(kept.Note)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { s.Run(ctx, table); close(ended) }()
			for _, note := range notes {
				time.Sleep(time.Minute)
				s.SetNote([]byte(note))
				time.Sleep(Delay)
				synctest.Wait()
				require.Equal(t, time.Now(), *s.Status().Stored)
			}
			cancel()
			<-ended
			kept, err := newStore(path, "rules", nil).Load()
			require.NoError(t, err)
			requireKept(t, table, kept)
			return string(kept.Note)
		}
		require.Empty(t, run())
		require.Equal(t, "two", run("one", "two"))
		require.Equal(t, "two", run(), "of an earlier run")
		require.Equal(t, strings.Repeat("x", 1<<20), run(strings.Repeat("x", 1<<20)))
		require.Empty(t, run(""))
	})
}

func TestFollowsInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.db")
		s := newStore(path, "rules", nil)
		table := new(memstore.Table)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.Run(ctx, table); close(ended) }()

		table.Apply([]*resource.Resource{made(1, "one")}, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NoFileExists(t, path, "what is not complete is not kept")

		table.MarkSynced()
		time.Sleep(Delay)
		synctest.Wait()
		require.Equal(t, memstore.Revision(1), s.Status().Revision)
		stored := *s.Status().Stored

		for i := range 100 {
			table.Apply([]*resource.Resource{made(i, "two")}, nil)
		}
		time.Sleep(Delay - time.Millisecond)
		synctest.Wait()
		require.Equal(t, memstore.Revision(1), s.Status().Revision, "not yet")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, memstore.Revision(101), s.Status().Revision)
		require.Equal(t, stored.Add(Delay), *s.Status().Stored)

		s.Guard(&guarding{state: []byte("guarded")})
		s.Touch()
		time.Sleep(Delay)
		synctest.Wait()
		table.Apply(nil, []resource.Key{key(1)})
		cancel()
		<-ended
		kept, err := s.Load()
		require.NoError(t, err)
		requireKept(t, table, kept)
		require.Equal(t, "guarded", string(kept.Guard))
		require.NoError(t, s.Forget())
		require.NoError(t, s.Forget())
		require.NoFileExists(t, path)
	})
}

// guarding is a guard as the store sees it.
type guarding struct {
	state []byte
	held  map[resource.Key]Held
}

func (g *guarding) State() []byte { return g.state }

func (g *guarding) Held(key resource.Key) (was, desired *resource.Resource, held bool) {
	h, held := g.held[key]
	return h.Was, h.Desired, held
}

// busy is a table that changes while it is looked at, and is stopped at once.
type busy struct {
	*memstore.Table
	next func()
}

func (b busy) Changes(since memstore.Revision) ([]resource.Key, memstore.Snapshot, bool) {
	defer b.next()
	return b.Table.Changes(since)
}

// What is unchanged at a restart costs the disk nothing, and what changes is written to the same file.
func TestAWholeFileIsGoneOnWith(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	table := synced(made(1, "one"), made(2, "two"))
	save(t, path, table)
	first, err := os.Stat(path)
	require.NoError(t, err)
	for round := range 3 {
		s := newStore(path, "rules", nil)
		kept, err := s.Load()
		require.NoError(t, err)
		next := synced(kept.Resources...)
		s.Continue(kept, next.Snapshot().Revision())
		w := s.writer()
		require.NoError(t, s.write(w, next))
		require.Nil(t, s.Status().Stored, "there is nothing to write")
		next.Apply([]*resource.Resource{made(1, fmt.Sprint("changed", round))}, nil)
		require.NoError(t, s.write(w, next))
		w.close()
		now, err := os.Stat(path)
		require.NoError(t, err)
		require.True(t, os.SameFile(first, now))
		kept, err = s.Load()
		require.NoError(t, err)
		requireKept(t, next, kept)
	}
}

// What counts as stored has reached the disk, in a new file as in one that is gone on with; a process that is killed cannot show that.
func TestEachTransactionIsSynced(t *testing.T) {
	require.Equal(t, 200*time.Millisecond, Delay)
	path := filepath.Join(t.TempDir(), "rules.db")
	table := synced(made(1, "one"))
	s := newStore(path, "rules", nil)
	for i := range 2 {
		w := s.writer()
		table.Apply([]*resource.Resource{made(2, fmt.Sprint(i))}, nil)
		require.NoError(t, s.write(w, table))
		require.True(t, w.file.Durable())
		w.close()
		kept, err := s.Load()
		require.NoError(t, err)
		table = synced(kept.Resources...)
		s.Continue(kept, table.Snapshot().Revision())
	}
}

// A file that is mostly empty is made anew.
func TestFilesDoNotGrowForEver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	table := synced()
	s := newStore(path, "rules", nil)
	w := s.writer()
	for i := range 200 {
		table.Apply([]*resource.Resource{made(i, strings.Repeat("x", 1000))}, nil)
	}
	require.NoError(t, s.write(w, table))
	for i := range 199 {
		table.Apply(nil, []resource.Key{key(i)})
	}
	require.NoError(t, s.write(w, table))
	w.close()
	before, err := os.Stat(path)
	require.NoError(t, err)
	kept, err := s.Load()
	require.NoError(t, err)
	next := synced(kept.Resources...)
	s.Continue(kept, next.Snapshot().Revision())
	w = s.writer()
	defer w.close()
	require.NoError(t, s.write(w, next))
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, after.Size(), before.Size())
}

// TestLastChangesAreWritten stops a store as it is told of a change, often enough for it to notice either first.
func TestLastChangesAreWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	for i := range 20 {
		s, table := newStore(path, "rules", nil), synced()
		ctx, cancel := context.WithCancel(t.Context())
		s.Run(ctx, busy{table, sync.OnceFunc(func() {
			table.Apply([]*resource.Resource{made(i, "one")}, nil)
			cancel()
		})})
		kept, err := s.Load()
		require.NoError(t, err)
		requireKept(t, table, kept)
	}
}

// timed is a table that notes when somebody looks whether it has changed, which a store does before it writes.
type timed struct {
	*memstore.Table
	mu sync.Mutex
	at []time.Time
}

func (t *timed) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = append(t.at, time.Now())
	return t.Table.Changed()
}

// between returns how long it was from one look to the next.
func (t *timed) between(i int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at[i+1].Sub(t.at[i])
}

func TestDiskThatFailsIsReportedOnceAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testutil.Buffer
		dir := filepath.Join(t.TempDir(), "sources")
		require.NoError(t, os.WriteFile(dir, nil, 0o600)) // no directory, so that nothing can be made in it
		s := newStore(filepath.Join(dir, "rules.db"), "rules", slog.New(slog.NewTextHandler(&log, nil)))
		table := synced(made(1, "one"))
		tries := &timed{Table: table}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.Run(ctx, tries); close(ended) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Contains(t, s.Status().Error, "not a directory")
		for i, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			require.Equal(t, wait, tries.between(i))
		}
		require.Equal(t, time.Minute, tries.between(19))
		require.Zero(t, s.Status().Revision)
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())

		require.NoError(t, os.Remove(dir))
		time.Sleep(lastRetry)
		synctest.Wait()
		require.Empty(t, s.Status().Error)
		require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())

		require.NoError(t, os.RemoveAll(dir)) // somebody cleans up
		table.Apply([]*resource.Resource{made(2, "two")}, nil)
		time.Sleep(Delay)
		synctest.Wait()
		kept, err := s.Load()
		require.NoError(t, err)
		requireKept(t, table, kept)
		cancel()
		<-ended
	})
}

func TestFullDisk(t *testing.T) {
	s := newStore(filepath.Join(t.TempDir(), "rules.db"), "rules", nil)
	table := synced(made(1, "one"))
	s.maxSize = 64 << 10
	w := s.writer()
	defer w.close()
	require.NoError(t, s.write(w, table))
	saved := synced(made(1, "one"))
	table.Apply([]*resource.Resource{made(2, strings.Repeat("x", 1<<20))}, nil)
	for range 3 {
		require.Error(t, s.write(w, table))
		require.Equal(t, memstore.Revision(1), s.Status().Revision)
		kept, err := s.Load()
		require.NoError(t, err)
		requireKept(t, saved, kept)
	}
	restarted := s.writer()
	require.Error(t, s.write(restarted, table), "nor can a new file be made")
	require.NoFileExists(t, s.path+".new")
	kept, err := s.Load()
	require.NoError(t, err)
	requireKept(t, saved, kept)

	table.Apply(nil, []resource.Key{key(2)}) // there is room again
	require.NoError(t, s.write(w, table))
	require.Equal(t, memstore.Revision(3), s.Status().Revision)
}

// TestFileDamagedWhileItIsWrittenTo checks that a fault in the mapped file is no crash.
func TestFileDamagedWhileItIsWrittenTo(t *testing.T) {
	s := newStore(filepath.Join(t.TempDir(), "rules.db"), "rules", nil)
	table := new(memstore.Table)
	for i := range 1000 {
		table.Apply([]*resource.Resource{made(i, strings.Repeat("x", 1000))}, nil)
	}
	table.MarkSynced()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx, table); close(ended) }()
	await(t, func() bool { return s.Status().Revision == 1000 })
	require.NoError(t, os.Truncate(s.path, 0))
	for i := range 1000 {
		table.Apply([]*resource.Resource{made(i, "short")}, nil)
	}
	await(t, func() bool { return s.Status().Revision == 2000 })
	cancel()
	<-ended
	kept, err := s.Load()
	require.NoError(t, err)
	requireKept(t, table, kept)
}

// await waits until ok holds.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		require.True(t, time.Now().Before(deadline), "waited in vain")
		time.Sleep(time.Millisecond)
	}
}

// TestHistories checks that after random changes and restarts the file has what the table has.
func TestHistories(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		s := newStore(filepath.Join(dir, fmt.Sprintf("%d.db", n)), "rules", nil)
		guard := &guarding{held: make(map[resource.Key]Held)}
		prints := make(map[string]Print)
		s.Guard(guard)
		table := synced()
		w := s.writer()
		defer func() { w.close() }()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"change", "change", "write", "write", "restart", "guard", "held", "print"}).Draw(t, "what") {
			case "change":
				var puts []*resource.Resource
				var deletes []resource.Key
				for range rapid.IntRange(1, 50).Draw(t, "changes") {
					if i := rapid.IntRange(0, 99).Draw(t, "name"); rapid.Bool().Draw(t, "put") {
						puts = append(puts, made(i, strings.Repeat("x", rapid.IntRange(0, 9000).Draw(t, "size"))))
					} else {
						deletes = append(deletes, key(i))
					}
				}
				table.Apply(puts, deletes)
			case "guard":
				state := rapid.SampledFrom([][]byte{nil, []byte("1"), []byte("2")}).Draw(t, "state")
				guard.state = state
			case "held":
				k := key(rapid.IntRange(0, 99).Draw(t, "held"))
				text := func(what string) *resource.Resource {
					return resource.FromBody(resource.Meta{
						Key: k, Origin: resource.Origin{Source: "rules", Place: "here", Group: "g"},
					}, []byte(rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, what)))
				}
				switch rapid.IntRange(0, 2).Draw(t, "how") {
				case 0:
					delete(guard.held, k)
				case 1:
					guard.held[k] = Held{Was: text("was")}
				default:
					guard.held[k] = Held{Was: text("was"), Desired: text("said")}
				}
				s.SetHeld([]resource.Key{k})
			case "print":
				p := Print{Notes: strings.Repeat("y", rapid.IntRange(0, 5000).Draw(t, "said"))}
				if p.Notes != "" {
					p.Sum[0] = 1
				}
				group := fmt.Sprint("g", rapid.IntRange(1, 5).Draw(t, "group"))
				if s.SetPrint(group, p); p == (Print{}) {
					delete(prints, group)
				} else {
					prints[group] = p
				}
			case "write":
				require.NoError(t, s.write(w, table))
				kept, err := s.Load()
				require.NoError(t, err)
				requireKept(t, table, kept)
				require.Equal(t, guard.state, kept.Guard)
				for r := range table.Snapshot().All() {
					held, ok := guard.held[r.Key()]
					was, is := kept.Held[r.Key()]
					require.Equal(t, ok, is)
					require.Equal(t, held, was)
				}
				require.Equal(t, prints, kept.Prints)
			case "restart":
				w.close()
				kept, err := s.Load()
				require.NoError(t, err)
				table = synced()
				if kept != nil {
					_, now := table.Apply(kept.Resources, nil)
					s.Continue(kept, now.Revision())
					guard.state, guard.held, prints = kept.Guard, kept.Held, kept.Prints
				}
				w = s.writer()
			}
		}
	})
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "state")
	d, err := Open(path, nil)
	require.NoError(t, err)
	_, err = Open(path, nil)
	require.EqualError(t, err, fmt.Sprintf(
		"state directory %s is in use by another tributary, process %d; give each a stateDir of its own", path, os.Getpid()))
	require.NoError(t, d.Close())
	d, err = Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, d.Close())

	file := filepath.Join(path, "lock")
	_, err = Open(file, nil)
	require.ErrorContains(t, err, "not a directory")
}

// TestLockOutlivesWhatItIsOn has somebody clear a state directory under the process that uses it, or put another one in its place.
func TestLockOutlivesWhatItIsOn(t *testing.T) {
	for what, clear := range map[string]func(path string) error{
		"cleared": func(path string) error {
			return errors.Join(os.RemoveAll(filepath.Join(path, "sources")), os.Remove(filepath.Join(path, "lock")))
		},
		"removed": os.RemoveAll,
		"replaced": func(path string) error {
			return errors.Join(os.RemoveAll(path+".old"), os.Rename(path, path+".old"), os.Mkdir(path, 0o700))
		},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			one, err := Open(path, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, one.Close()) }()
			inUse := fmt.Sprintf("state directory %s is in use by another tributary, process %d; give each a stateDir of its own", path, os.Getpid())
			s, table := one.Source("rules"), synced(made(1, "one"))
			w := s.writer()
			defer w.close()
			require.NoError(t, s.write(w, table))

			require.NoError(t, clear(path))
			if what == "cleared" {
				_, err := Open(path, nil)
				require.ErrorContains(t, err, "is in use by another tributary")
			}
			table.Apply([]*resource.Resource{made(2, "two")}, nil)
			require.NoError(t, s.write(w, table))
			_, err = Open(path, nil)
			require.EqualError(t, err, inUse, "it is locked again with what is written")

			require.NoError(t, clear(path))
			if what == "cleared" {
				return
			}
			two, err := Open(path, nil)
			require.NoError(t, err, "nobody can tell")
			save(t, two.Source("rules").path, synced(made(3, "three")))
			table.Apply([]*resource.Resource{made(4, "four")}, nil)
			require.EqualError(t, s.write(w, table), inUse)
			require.EqualError(t, s.Forget(), "forget source rules: "+inUse)
			require.EqualError(t, one.Unused(nil, time.Now().Add(time.Hour)), inUse)
			kept, err := two.Source("rules").Load()
			require.NoError(t, err)
			require.Len(t, kept.Resources, 1, "what the other one wrote")
			require.NoError(t, two.Close())
			require.NoError(t, s.write(w, table))
		})
	}
}

func TestClockStepsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	clock := time.Now()
	s := newStore(path, "rules", nil)
	s.now = func() time.Time { return clock }
	table := synced(made(1, "one"))
	w := s.writer()
	require.NoError(t, s.write(w, table))
	clock = clock.Add(-time.Hour)
	table.Apply([]*resource.Resource{made(1, "two")}, nil)
	require.NoError(t, s.write(w, table))
	w.close()
	kept, err := s.Load()
	require.NoError(t, err)
	requireKept(t, table, kept)
	require.True(t, clock.Equal(kept.Stored))
}

func TestMain(m *testing.M) {
	if path, ok := testutil.KillTarget(); ok {
		writeForever(path)
	}
	goleak.VerifyTestMain(m)
}
