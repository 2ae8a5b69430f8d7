package lastgood

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/disk"
	"tributary/internal/testutil"
	"tributary/memstore"
	"tributary/resource"
)

// writeCommits returns a file after n commits, and the tables that it had after each of them, and where each ended.
func writeCommits(t testing.TB, n, objects, size int) (data []byte, tables []*memstore.Table, ends []int) {
	path := filepath.Join(t.TempDir(), "rules.db")
	store := newStore(path, "rules", nil)
	writer := store.writer()
	defer writer.close()
	table := syncedTable()
	for step := range n {
		for i := range objects {
			if step == 0 || i%(step+1) == 0 {
				table.Apply([]*resource.Resource{newObject(i, fmt.Sprint(step, strings.Repeat("x", size)))}, nil)
			}
		}
		store.SetPrint("g", Print{Sum: [16]byte{1}, Notes: fmt.Sprint(step)})
		write(t, store, writer, table)
		var resources []*resource.Resource
		for r := range table.Snapshot().All() {
			resources = append(resources, r)
		}
		tables, ends = append(tables, syncedTable(resources...)), append(ends, int(writer.file.Size()))
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data, tables, ends
}

// parseFile returns the state in data.
func parseFile(data []byte) (*State, error) {
	state, _, err := newStore("rules.db", "rules", nil).decode(disk.NewReader(bytes.NewReader(data), int64(len(data))))
	return state, err
}

// newDamagedStore returns a store with data in its file.
func newDamagedStore(t *testing.T, data []byte) *Store {
	s := testStore(t)
	require.NoError(t, os.WriteFile(s.path, data, 0o600))
	return s
}

// countOlder returns the number of objects of the last table that are missing or have the content of an earlier table.
// Other content fails the test.
func countOlder(t *testing.T, state *State, tables []*memstore.Table) (n int) {
	byKey := make(map[resource.Key]*resource.Resource)
	for _, r := range state.Resources {
		byKey[r.Key()] = r
	}
	for want := range tables[len(tables)-1].Snapshot().All() {
		loaded := byKey[want.Key()]
		delete(byKey, want.Key())
		if loaded != nil && resource.Equal(loaded, want) {
			continue
		}
		n++
		earlier := loaded == nil
		for _, table := range tables {
			earlier = earlier || resource.Equal(loaded, table.Snapshot().Get(loaded.Key()))
		}
		require.True(t, earlier, "%s was never so", want.Key())
	}
	require.Empty(t, byKey)
	return n
}

// A truncated file has the state of its last whole commit.
func TestTruncatedAtEveryByte(t *testing.T) {
	data, tables, ends := writeCommits(t, 3, 20, 10)
	for n := range len(data) + 1 {
		state, err := parseFile(data[:n])
		if n < ends[0] {
			require.ErrorIs(t, err, errDamaged, "%d bytes", n)
			continue
		}
		require.NoError(t, err)
		commits := 0
		for commits < len(ends) && ends[commits] <= n {
			commits++
		}
		requireState(t, tables[commits-1], state)
		require.Zero(t, state.damagedParts)
		require.Equal(t, ends[commits-1], int(state.committed))
	}
}

func TestTruncatedFileIsSetAside(t *testing.T) {
	data, _, ends := writeCommits(t, 3, 100, 100)
	store := newDamagedStore(t, data[:ends[0]/2])
	store.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }
	state, err := store.Load()
	require.Nil(t, state)
	aside := store.path + ".damaged-20260102T030405.000000006Z"
	require.ErrorContains(t, err, "; it was set aside as "+aside)
	require.FileExists(t, aside)
	require.NoFileExists(t, store.path)
}

// A flipped bit costs at most its record. In the last commit record it costs the records of that commit.
func TestEveryBitOfASmallFile(t *testing.T) {
	data, tables, ends := writeCommits(t, 3, 3, 1)
	for i := range data {
		bit := byte(1) << rand.N(8)
		data[i] ^= bit
		state, err := parseFile(data)
		data[i] ^= bit
		require.NoError(t, err)
		maxDamaged := 1
		if i >= ends[1] {
			maxDamaged = 3
		}
		require.LessOrEqual(t, countOlder(t, state, tables), maxDamaged, "byte %d", i)
		require.Equal(t, 1, state.damagedParts)
		require.Empty(t, state.Prints, "a group may lack an object")
		require.LessOrEqual(t, state.firstDamage, int64(i))
	}
}

// Of a file with one commit, the commit itself is needed.
func TestWithoutAWholeCommit(t *testing.T) {
	data, _, ends := writeCommits(t, 1, 3, 1)
	data[ends[0]-1] ^= 1
	_, err := parseFile(data)
	require.ErrorIs(t, err, errDamaged)
}

func TestBitsFlippedInALargeFile(t *testing.T) {
	data, tables, ends := writeCommits(t, 4, 200, 200)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for range 500 {
		flipped := make(map[int]byte)
		for range 1 + random.IntN(4) {
			flipped[random.IntN(ends[2]-ends[1])] = byte(1) << random.IntN(8)
		}
		for i, bit := range flipped {
			data[i] ^= bit
		}
		state, err := parseFile(data)
		for i, bit := range flipped {
			data[i] ^= bit
		}
		require.NoError(t, err)
		require.LessOrEqual(t, countOlder(t, state, tables), len(flipped))
		require.LessOrEqual(t, state.damagedParts, len(flipped))
		require.Positive(t, state.damagedParts)
	}
}

// A hole, as of a disk that loses a write, costs the records in it.
func TestHoles(t *testing.T) {
	data, tables, _ := writeCommits(t, 3, 100, 100)
	for from := 0; from+4096 < len(data); from += 511 {
		holed := bytes.Clone(data)
		clear(holed[from : from+4096])
		state, err := parseFile(holed)
		if err != nil {
			require.ErrorIs(t, err, errDamaged)
			continue
		}
		if from+8192 < len(data) { // else the last commit may be in it
			require.LessOrEqual(t, countOlder(t, state, tables), 20)
			require.LessOrEqual(t, state.damagedParts, 2, "the record whose header is intact, and the rest")
			require.Positive(t, state.damagedParts)
		}
	}
}

// A damaged file is logged, and replaced by the next write.
func TestDamagedFilesAreReplaced(t *testing.T) {
	data, tables, _ := writeCommits(t, 3, 300, 100)
	data[len(data)/4] ^= 1
	var buffer testutil.Buffer
	store := newDamagedStore(t, data)
	store.log = slog.New(slog.NewTextHandler(&buffer, nil))
	state := load(t, store)
	require.Regexp(t, `a state file is damaged: the rest of it is used" file=\S+rules.db damages=1 first_at_byte=\d+\n$`,
		buffer.String())
	require.LessOrEqual(t, countOlder(t, state, tables), 1)
	table := syncedTable(state.Resources...)
	store.Continue(state, table.Snapshot().Revision())
	w := store.writer()
	defer w.close()
	write(t, store, w, table)
	state = load(t, store)
	require.Zero(t, state.damagedParts)
	requireState(t, table, state)
}

// The unfinished write of a killed process is logged and cut off, and the store appends to the file.
func TestTornEndIsCutOff(t *testing.T) {
	data, tables, ends := writeCommits(t, 3, 30, 10)
	for _, torn := range [][]byte{data[:len(data)-1], data[:ends[1]+5], append(bytes.Clone(data), make([]byte, 100)...)} {
		var buffer testutil.Buffer
		store := newDamagedStore(t, torn)
		store.log = slog.New(slog.NewTextHandler(&buffer, nil))
		state := load(t, store)
		require.Contains(t, buffer.String(), fmt.Sprintf("is cut off\" file=%s at_byte=%d", store.path, state.committed))
		table := syncedTable(state.Resources...)
		store.Continue(state, table.Snapshot().Revision())
		writer := store.writer()
		require.True(t, writer.file.IsOpen())
		put(table, 1, "new")
		write(t, store, writer, table)
		writer.close()
		state = load(t, store)
		require.Zero(t, state.damagedParts)
		requireState(t, table, state)
	}
	require.NotEmpty(t, tables)
}

// A file that another program or an earlier version wrote is set aside: the one line says which, and why.
func TestForeignFiles(t *testing.T) {
	bolt := make([]byte, 1<<15) // as far as it matters
	copy(bolt[8:], []byte{4, 0, 0, 0, 0, 0, 0, 0, 0xED, 0xDA, 0x0C, 0xED, 2, 0, 0, 0, 0, 16})
	for name, data := range map[string][]byte{
		"empty": nil, "text": []byte("hello"), "zeros": make([]byte, 1<<16), "of an earlier version": bolt,
	} {
		store := newDamagedStore(t, data)
		_, err := store.Load()
		require.ErrorIs(t, err, errDamaged, name)
		require.ErrorContains(t, err,
			store.path+" is not used: damaged, or not written by this version of tributary; it was set aside as ")
	}
}

// A file that cannot be read may be healthy: it stays until a restart can read it, or a person deletes it. A link to
// itself fails for every user, like missing rights or a failing disk.
func TestUnreadableFile_Stays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	unreadable := "open " + path + ": too many levels of symbolic links"
	runStore(t, path, syncedTable(newObject(1, "one")))
	require.NoError(t, os.Rename(path, path+".disk"))
	require.NoError(t, os.Symlink(path, path))

	store := newStore(path, "rules", nil)
	state, err := store.Load()
	require.Nil(t, state)
	require.EqualError(t, err, "the state file cannot be read: "+unreadable+
		"; it stays, and objects of the source are not stored until it is deleted, or a restart can read it")
	empty := syncedTable()
	successor := newStore(path, "rules", nil) // by other settings
	successor.InheritUnread(store)
	for _, store := range []*Store{store, successor} {
		output := store.writer()
		require.ErrorContains(t, store.write(output, new(memstore.Table)), unreadable, "before the first read of the source")
		require.ErrorContains(t, store.write(output, empty), unreadable)
		output.close()
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing is set aside")

	require.NoError(t, os.Rename(path+".disk", path)) // the disk works again
	output := store.writer()
	defer output.close()
	require.ErrorContains(t, store.write(output, empty), unreadable, "this process does not have its objects")
	requireState(t, syncedTable(newObject(1, "one")), load(t, newStore(path, "rules", nil)))

	require.NoError(t, os.Remove(path))
	write(t, store, output, empty)
	requireState(t, empty, load(t, newStore(path, "rules", nil)))
}

// A directory is no damaged file: it stays.
func TestDirectoryInPlaceOfFile_Stays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	require.NoError(t, os.Mkdir(path, 0o700))
	_, err := newStore(path, "rules", nil).Load()
	require.ErrorContains(t, err, "is a directory; it stays")
	require.DirExists(t, path)
}

// A commit without a valid time is damage.
func TestCommitWithoutTime_IsDamaged(t *testing.T) {
	_, err := parseFile(record{keyCommit, []byte("yesterday")}.appendTo(nil))
	require.ErrorIs(t, err, errDamaged)
}

// FuzzRecord holds the decoding of records to refusing, and never panicking or running forever on, whatever is in one.
func FuzzRecord(f *testing.F) {
	r := newObject(1, "one").WithOriginal(newObject(1, "before"))
	f.Add(record{recordKey(r.Key()), encodeObject(r, r, newObject(1, "said"), true)}.appendTo(nil)[12:])
	f.Add([]byte("no record"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if r, err := decodeRecord(data); err == nil {
			_, _, _ = decodeObject(key(1), r.value, "rules")
		}
	})
}

// TestUnreadFile_StaysAfterExchange: a file could not be read at the start. Then the disk works again, and a reload
// exchanges the settings of its source and another one. No store replaces the file.
func TestUnreadFile_StaysAfterExchange(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.db"), filepath.Join(dir, "second.db")
	open := func(path, reading string) *Store {
		store := newStore(path, filepath.Base(path), nil)
		store.SetReading(reading)
		return store
	}
	for path, reading := range map[string]string{first: "a", second: "b"} {
		store := open(path, reading)
		output := store.writer()
		write(t, store, output, syncedTable(newObject(1, reading)))
		output.close()
	}
	require.NoError(t, os.Rename(first, first+".disk"))
	require.NoError(t, os.Symlink(first, first))
	unread := open(first, "a")
	_, err := unread.Load()
	require.Error(t, err)
	require.NoError(t, os.Rename(first+".disk", first)) // the disk works again
	before, err := os.ReadFile(first)
	require.NoError(t, err)

	successors := []*Store{open(first, "b"), open(second, "a")}
	successors[0].InheritUnread(unread)
	require.NoError(t, Reassign(successors))
	for _, store := range successors {
		output := store.writer()
		_ = store.write(output, syncedTable(newObject(2, "new")))
		output.close()
	}
	after, err := os.ReadFile(first)
	require.NoError(t, err)
	moved, err := os.ReadFile(second)
	require.NoError(t, err)
	require.Contains(t, []string{string(after), string(moved)}, string(before), "its objects are lost")
}
