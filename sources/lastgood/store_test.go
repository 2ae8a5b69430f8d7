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
	"tributary/sources/guard"
)

func key(i int) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: fmt.Sprintf("s%04d", i)}
}

// newObject returns an object with each stored field.
func newObject(i int, body string) *resource.Resource {
	return resource.FromBody(resource.Meta{
		Key: key(i), Labels: map[string]string{"app": "a", "": "b"}, Annotations: map[string]string{"note": "", "n": body},
		Created: time.Unix(int64(i), 123).UTC(),
		Origin:  resource.Origin{Source: "rules", Place: fmt.Sprintf("a.yaml:%d", i), Group: "a.yaml", Rules: "host"},
	}, []byte(body))
}

// syncedTable returns a synced table of objects.
func syncedTable(rs ...*resource.Resource) *memstore.Table {
	t := new(memstore.Table)
	t.Apply(rs, nil)
	t.MarkSynced()
	return t
}

// runStore writes a table with a store at path, and stops it.
func runStore(t require.TestingT, path string, table memstore.Reader) {
	store := newStore(path, "rules", nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	store.Run(ctx, table)
	require.Empty(t, store.Status().Error)
	require.Equal(t, table.Snapshot().Revision(), store.Status().Revision)
}

// testStore is a store of a new directory.
func testStore(t testing.TB) *Store {
	return newStore(filepath.Join(t.TempDir(), "rules.db"), "rules", nil)
}

func load(t require.TestingT, store *Store) *State {
	state, err := store.Load()
	require.NoError(t, err)
	return state
}

func write(t require.TestingT, store *Store, output *writer, table memstore.Reader) {
	require.NoError(t, store.write(output, table))
}

// put puts an object into a table.
func put(table *memstore.Table, i int, body string) {
	table.Apply([]*resource.Resource{newObject(i, body)}, nil)
}

// follow runs a store until stop.
func follow(t testing.TB, store *Store, table memstore.Reader) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { store.Run(ctx, table); close(ended) }()
	return func() {
		cancel()
		<-ended
	}
}

// requireState compares a loaded state with a table.
func requireState(t require.TestingT, table memstore.Reader, state *State) {
	require.NotNil(t, state)
	var want []*resource.Resource
	for r := range table.Snapshot().All() {
		want = append(want, r)
	}
	require.Equal(t, want, state.Resources)
}

func TestLoadReturnsSavedState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	table := syncedTable(newObject(1, "one"), newObject(2, ""), resource.FromBody(resource.Meta{
		Key:    resource.Key{Kind: resource.MeshConfig, Name: "mesh"},
		Origin: resource.Origin{Source: "rules"},
	}, []byte("mesh")), newObject(3, "after").WithOriginal(resource.FromBody(resource.Meta{
		Key:    resource.Key{Kind: newObject(3, "").Key().Kind, Namespace: "another", Name: newObject(3, "").Key().Name},
		Origin: resource.Origin{Source: "rules"},
	}, []byte("before"))))
	runStore(t, path, table)
	state := load(t, newStore(path, "rules", nil))
	requireState(t, table, state)
	require.Nil(t, state.Guard)
	require.WithinDuration(t, time.Now(), state.Stored, time.Minute)

	state = load(t, newStore(path+".missing", "rules", nil))
	require.Nil(t, state)
}

func TestNotesSurviveRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.db")
		table := syncedTable(newObject(1, "one"))
		// run starts the store with the note of the previous run, and sets notes while the table stays the same.
		run := func(notes ...string) string {
			store := newStore(path, "rules", nil)
			if state, err := store.Load(); state != nil {
				require.NoError(t, err)
				store.SetNote(state.Note)
			}
			stop := follow(t, store, table)
			for _, note := range notes {
				time.Sleep(time.Minute)
				store.SetNote([]byte(note))
				time.Sleep(Delay)
				synctest.Wait()
				require.Equal(t, time.Now(), *store.Status().Stored)
			}
			stop()
			state := load(t, newStore(path, "rules", nil))
			requireState(t, table, state)
			return string(state.Note)
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
		store := newStore(path, "rules", nil)
		table := new(memstore.Table)
		stop := follow(t, store, table)

		put(table, 1, "one")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NoFileExists(t, path, "an unsynced table is not stored")

		table.MarkSynced()
		time.Sleep(Delay)
		synctest.Wait()
		require.Equal(t, memstore.Revision(1), store.Status().Revision)
		stored := *store.Status().Stored

		for i := range 100 {
			put(table, i, "two")
		}
		time.Sleep(Delay - time.Millisecond)
		synctest.Wait()
		require.Equal(t, memstore.Revision(1), store.Status().Revision, "not yet")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, memstore.Revision(101), store.Status().Revision)
		require.Equal(t, stored.Add(Delay), *store.Status().Stored)

		store.SetGuard(&fakeGuard{state: []byte("guarded")})
		store.Touch()
		time.Sleep(Delay)
		synctest.Wait()
		table.Apply(nil, []resource.Key{key(1)})
		stop()
		state := load(t, store)
		requireState(t, table, state)
		require.Equal(t, "guarded", string(state.Guard))
		require.NoError(t, store.Forget())
		require.NoError(t, store.Forget())
		require.NoFileExists(t, path)
	})
}

// fakeGuard is a guard as the store sees it. Its lock is that of commits.
type fakeGuard struct {
	sync.Mutex
	state []byte
	held  map[resource.Key]guard.Loss
}

func (g *fakeGuard) BetweenCommits(read func(state []byte)) {
	g.Lock()
	defer g.Unlock()
	read(g.state)
}

func (g *fakeGuard) Held(key resource.Key) (previous, desired *resource.Resource, held bool) {
	h, held := g.held[key]
	return h.Previous, h.Desired, held
}

// changingTable is a table that changes while it is looked at, and is stopped at once.
type changingTable struct {
	*memstore.Table
	change func()
}

func (c changingTable) Changes(revision memstore.Revision) ([]resource.Key, memstore.Snapshot, bool) {
	defer c.change()
	return c.Table.Changes(revision)
}

// TestRepair_StoresPolicyOrMark repairs a policy that was never valid while the store writes: the file has the policy or
// its mark after each write.
func TestRepair_StoresPolicyOrMark(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, store *Store, output *writer, table *memstore.Table){
		"new file": func(*testing.T, *Store, *writer, *memstore.Table) {},
		"append": func(t *testing.T, store *Store, output *writer, table *memstore.Table) {
			write(t, store, output, table)
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := testStore(t)
			lock := new(fakeGuard)
			store.SetGuard(lock)
			table := syncedTable(newObject(1, "other"))
			store.SetPrint("policy.yaml", Print{Notes: "mark"})
			output := store.writer()
			defer output.close()
			prepare(t, store, output, table)
			repaired := false
			repair := func() {
				if !repaired && lock.TryLock() {
					defer lock.Unlock()
					repaired = true
					put(table, 2, "policy")
					store.SetPrint("policy.yaml", Print{Sum: [16]byte{1}})
				}
			}
			for range 3 {
				require.NoError(t, store.write(output, changingTable{table, repair}))
				state := load(t, newStore(store.path, "rules", nil))
				marked := state.Prints["policy.yaml"].Notes == "mark"
				require.NotEqual(t, marked, len(state.Resources) == 2, "either the policy or its mark")
				repair()
			}
		})
	}
}

// A restart writes no unchanged object, and appends changes to the same file.
func TestRestartAppendsToFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	table := syncedTable(newObject(1, "one"), newObject(2, "two"))
	runStore(t, path, table)
	first, err := os.Stat(path)
	require.NoError(t, err)
	for round := range 3 {
		store := newStore(path, "rules", nil)
		state := load(t, store)
		next := syncedTable(state.Resources...)
		store.Continue(state, next.Snapshot().Revision())
		writer := store.writer()
		write(t, store, writer, next)
		require.Nil(t, store.Status().Stored, "no change to write")
		put(next, 1, fmt.Sprint("changed", round))
		write(t, store, writer, next)
		writer.close()
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.True(t, os.SameFile(first, info))
		state = load(t, store)
		requireState(t, next, state)
	}
}

// A write counts as stored after its sync, in a new file and in an appended one. A killed process cannot show that.
func TestEachTransactionIsSynced(t *testing.T) {
	require.Equal(t, 200*time.Millisecond, Delay)
	path := filepath.Join(t.TempDir(), "rules.db")
	table := syncedTable(newObject(1, "one"))
	store := newStore(path, "rules", nil)
	for i := range 2 {
		writer := store.writer()
		put(table, 2, fmt.Sprint(i))
		write(t, store, writer, table)
		require.True(t, writer.file.Durable())
		writer.close()
		state := load(t, store)
		table = syncedTable(state.Resources...)
		store.Continue(state, table.Snapshot().Revision())
	}
}

// The store replaces a file of mostly outdated records.
func TestFilesDoNotGrowForEver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	table := syncedTable()
	store := newStore(path, "rules", nil)
	writer := store.writer()
	for i := range 200 {
		put(table, i, strings.Repeat("x", 1000))
	}
	write(t, store, writer, table)
	for i := range 199 {
		table.Apply(nil, []resource.Key{key(i)})
	}
	write(t, store, writer, table)
	writer.close()
	before, err := os.Stat(path)
	require.NoError(t, err)
	state := load(t, store)
	next := syncedTable(state.Resources...)
	store.Continue(state, next.Snapshot().Revision())
	writer = store.writer()
	defer writer.close()
	write(t, store, writer, next)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, after.Size(), before.Size())
}

// TestLastChangesAreWritten stops a store during a change, so that it notices either one first.
func TestLastChangesAreWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	for i := range 20 {
		store, table := newStore(path, "rules", nil), syncedTable()
		ctx, cancel := context.WithCancel(t.Context())
		store.Run(ctx, changingTable{table, sync.OnceFunc(func() {
			put(table, i, "one")
			cancel()
		})})
		state := load(t, store)
		requireState(t, table, state)
	}
}

// countingTable records the times of calls to Changed, which a store makes before each write.
type countingTable struct {
	*memstore.Table
	mu    sync.Mutex
	calls []time.Time
}

func (t *countingTable) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, time.Now())
	return t.Table.Changed()
}

// between returns the time between two calls.
func (t *countingTable) between(i int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls[i+1].Sub(t.calls[i])
}

func TestDiskThatFailsIsReportedOnceAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buffer testutil.Buffer
		dir := filepath.Join(t.TempDir(), "sources")
		require.NoError(t, os.WriteFile(dir, nil, 0o600)) // a file, so that no file can be made in it
		store := newStore(filepath.Join(dir, "rules.db"), "rules", slog.New(slog.NewTextHandler(&buffer, nil)))
		table := syncedTable(newObject(1, "one"))
		tries := &countingTable{Table: table}
		stop := follow(t, store, tries)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Contains(t, store.Status().Error, "not a directory")
		for i, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			require.Equal(t, wait, tries.between(i))
		}
		require.Equal(t, time.Minute, tries.between(19))
		require.Zero(t, store.Status().Revision)
		require.Equal(t, 1, strings.Count(buffer.String(), "\n"), buffer.String())

		require.NoError(t, os.Remove(dir))
		time.Sleep(lastRetry)
		synctest.Wait()
		require.Empty(t, store.Status().Error)
		require.Equal(t, 2, strings.Count(buffer.String(), "\n"), buffer.String())

		require.NoError(t, os.RemoveAll(dir)) // a person cleans up
		put(table, 2, "two")
		time.Sleep(Delay)
		synctest.Wait()
		state := load(t, store)
		requireState(t, table, state)
		stop()
	})
}

func TestFullDisk(t *testing.T) {
	store := testStore(t)
	table := syncedTable(newObject(1, "one"))
	store.maxSize = 64 << 10
	writer := store.writer()
	defer writer.close()
	write(t, store, writer, table)
	saved := syncedTable(newObject(1, "one"))
	put(table, 2, strings.Repeat("x", 1<<20))
	for range 3 {
		require.Error(t, store.write(writer, table))
		require.Equal(t, memstore.Revision(1), store.Status().Revision)
		state := load(t, store)
		requireState(t, saved, state)
	}
	restarted := store.writer()
	require.Error(t, store.write(restarted, table), "nor can a new file be made")
	require.NoFileExists(t, store.path+".new")
	state := load(t, store)
	requireState(t, saved, state)

	table.Apply(nil, []resource.Key{key(2)}) // there is room again
	write(t, store, writer, table)
	require.Equal(t, memstore.Revision(3), store.Status().Revision)
}

// TestFileDamagedWhileItIsWrittenTo checks that a fault in the mapped file is no crash.
func TestFileDamagedWhileItIsWrittenTo(t *testing.T) {
	store := testStore(t)
	table := new(memstore.Table)
	for i := range 1000 {
		put(table, i, strings.Repeat("x", 1000))
	}
	table.MarkSynced()
	stop := follow(t, store, table)
	await(t, func() bool { return store.Status().Revision == 1000 })
	require.NoError(t, os.Truncate(store.path, 0))
	for i := range 1000 {
		put(table, i, "short")
	}
	await(t, func() bool { return store.Status().Revision == 2000 })
	stop()
	state := load(t, store)
	requireState(t, table, state)
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

// TestHistories compares the file with the table after random changes and restarts.
func TestHistories(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		store := newStore(filepath.Join(dir, fmt.Sprintf("%d.db", n)), "rules", nil)
		fake := &fakeGuard{held: make(map[resource.Key]guard.Loss)}
		prints := make(map[string]Print)
		store.SetGuard(fake)
		table := syncedTable()
		writer := store.writer()
		defer func() { writer.close() }()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"change", "change", "write", "write", "restart", "guard", "held", "print"}).Draw(t,
				"what") {
			case "change":
				var puts []*resource.Resource
				var deletes []resource.Key
				for range rapid.IntRange(1, 50).Draw(t, "changes") {
					if i := rapid.IntRange(0, 99).Draw(t, "name"); rapid.Bool().Draw(t, "put") {
						puts = append(puts, newObject(i, strings.Repeat("x", rapid.IntRange(0, 9000).Draw(t, "size"))))
					} else {
						deletes = append(deletes, key(i))
					}
				}
				table.Apply(puts, deletes)
			case "guard":
				state := rapid.SampledFrom([][]byte{nil, []byte("1"), []byte("2")}).Draw(t, "state")
				fake.state = state
			case "held":
				k := key(rapid.IntRange(0, 99).Draw(t, "held"))
				text := func(label string) *resource.Resource {
					return resource.FromBody(resource.Meta{
						Key: k, Origin: resource.Origin{Source: "rules", Place: "here", Group: "g"},
					}, []byte(rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, label)))
				}
				switch rapid.IntRange(0, 2).Draw(t, "how") {
				case 0:
					delete(fake.held, k)
				case 1:
					fake.held[k] = guard.Loss{Previous: text("was")}
				default:
					fake.held[k] = guard.Loss{Previous: text("was"), Desired: text("said")}
				}
				store.SetHeld([]resource.Key{k})
			case "print":
				p := Print{Notes: strings.Repeat("y", rapid.IntRange(0, 5000).Draw(t, "said"))}
				if p.Notes != "" {
					p.Sum[0] = 1
				}
				group := fmt.Sprint("g", rapid.IntRange(1, 5).Draw(t, "group"))
				if store.SetPrint(group, p); p == (Print{}) {
					delete(prints, group)
				} else {
					prints[group] = p
				}
			case "write":
				write(t, store, writer, table)
				state := load(t, store)
				requireState(t, table, state)
				require.Equal(t, fake.state, state.Guard)
				for r := range table.Snapshot().All() {
					held, ok := fake.held[r.Key()]
					expected, loaded := state.Held[r.Key()]
					require.Equal(t, ok, loaded)
					require.Equal(t, expected, held)
				}
				require.Equal(t, prints, state.Prints)
			case "restart":
				writer.close()
				state := load(t, store)
				table = syncedTable()
				if state != nil {
					_, now := table.Apply(state.Resources, nil)
					store.Continue(state, now.Revision())
					fake.state, fake.held, prints = state.Guard, state.Held, state.Prints
				}
				writer = store.writer()
			}
		}
	})
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "state")
	dir, err := Open(path, nil)
	require.NoError(t, err)
	_, err = Open(path, nil)
	require.EqualError(t, err, fmt.Sprintf(
		"state directory %s is in use by another tributary, process %d; give each a stateDir of its own", path, os.Getpid()))
	require.NoError(t, dir.Close())
	dir, err = Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, dir.Close())

	file := filepath.Join(path, "lock")
	_, err = Open(file, nil)
	require.ErrorContains(t, err, "not a directory")
}

// TestLockSurvivesDirectory clears or replaces a state directory during its use.
func TestLockSurvivesDirectory(t *testing.T) {
	for name, clear := range map[string]func(path string) error{
		"cleared": func(path string) error {
			return errors.Join(os.RemoveAll(filepath.Join(path, "sources")), os.Remove(filepath.Join(path, "lock")))
		},
		"removed": os.RemoveAll,
		"replaced": func(path string) error {
			return errors.Join(os.RemoveAll(path+".old"), os.Rename(path, path+".old"), os.Mkdir(path, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			first, err := Open(path, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, first.Close()) }()
			inUse := fmt.Sprintf("state directory %s is in use by another tributary, process %d; give each a stateDir of its "+
				"own", path, os.Getpid())
			store, table := first.Source("rules"), syncedTable(newObject(1, "one"))
			writer := store.writer()
			defer writer.close()
			write(t, store, writer, table)

			require.NoError(t, clear(path))
			if name == "cleared" {
				_, err := Open(path, nil)
				require.ErrorContains(t, err, "is in use by another tributary")
			}
			put(table, 2, "two")
			write(t, store, writer, table)
			_, err = Open(path, nil)
			require.EqualError(t, err, inUse, "the next write locks it again")

			require.NoError(t, clear(path))
			if name == "cleared" {
				return
			}
			second, err := Open(path, nil)
			require.NoError(t, err, "nobody can tell")
			runStore(t, second.Source("rules").path, syncedTable(newObject(3, "three")))
			put(table, 4, "four")
			require.EqualError(t, store.write(writer, table), inUse)
			require.EqualError(t, store.Forget(), "forget source rules: "+inUse)
			require.EqualError(t, first.RemoveUnused(nil, time.Now().Add(time.Hour)), inUse)
			state, err := second.Source("rules").Load()
			require.NoError(t, err)
			require.Len(t, state.Resources, 1, "the state of the other process")
			require.NoError(t, second.Close())
			write(t, store, writer, table)
		})
	}
}

func TestClockStepsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	clock := time.Now()
	store := newStore(path, "rules", nil)
	store.now = func() time.Time { return clock }
	table := syncedTable(newObject(1, "one"))
	writer := store.writer()
	write(t, store, writer, table)
	clock = clock.Add(-time.Hour)
	put(table, 1, "two")
	write(t, store, writer, table)
	writer.close()
	state := load(t, store)
	requireState(t, table, state)
	require.True(t, clock.Equal(state.Stored))
}

func TestMain(m *testing.M) {
	if path, ok := testutil.KillTarget(); ok {
		writeForever(path)
	}
	goleak.VerifyTestMain(m)
}

// TestLoad_OtherReading: objects that other settings made are outdated until the store has written those of its own.
// The note stays, and no print counts.
func TestLoad_OtherReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	load := func(reading string) (*Store, *State) {
		store := newStore(path, "rules", nil)
		store.SetReading(reading)
		state := load(t, store)
		return store, state
	}
	write := func(s *Store, table memstore.Reader) {
		stopped, stop := context.WithCancel(t.Context())
		stop()
		s.Run(stopped, table)
	}
	first, _ := load("one")
	first.SetNote([]byte("note"))
	first.SetPrint("g", Print{Notes: "print"})
	write(first, syncedTable(newObject(1, "one")))
	_, state := load("one")
	require.False(t, state.Outdated)

	for range 2 { // as long as it is not replaced
		_, state = load("two")
		require.True(t, state.Outdated)
		require.Equal(t, "note", string(state.Note))
		require.Len(t, state.Resources, 1)
		require.Len(t, state.Prints, 1, "of the rejects")
	}
	next, _ := load("two")
	write(next, syncedTable(newObject(1, "two")))
	_, state = load("two")
	require.False(t, state.Outdated)
	require.Equal(t, "note", string(state.Note))
	require.Empty(t, state.Prints)
	_, state = load("one")
	require.True(t, state.Outdated)
}
