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

// written returns a file after n commits, and the tables that it had after each of them, and where each ended.
func written(t testing.TB, n, objects, size int) (data []byte, tables []*memstore.Table, ends []int) {
	path := filepath.Join(t.TempDir(), "rules.db")
	s := newStore(path, "rules", nil)
	w := s.writer()
	defer w.close()
	table := synced()
	for step := range n {
		for i := range objects {
			if step == 0 || i%(step+1) == 0 {
				table.Apply([]*resource.Resource{made(i, fmt.Sprint(step, strings.Repeat("x", size)))}, nil)
			}
		}
		s.SetPrint("g", Print{Sum: [16]byte{1}, Notes: fmt.Sprint(step)})
		require.NoError(t, s.write(w, table))
		var rs []*resource.Resource
		for r := range table.Snapshot().All() {
			rs = append(rs, r)
		}
		tables, ends = append(tables, synced(rs...)), append(ends, int(w.file.Size()))
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data, tables, ends
}

// loaded is what is read of data.
func loaded(data []byte) (*Kept, error) {
	return newStore("rules.db", "rules", nil).parse(disk.NewReader(bytes.NewReader(data), int64(len(data))))
}

// put returns a store with data in its file.
func put(t *testing.T, data []byte) *Store {
	s := newStore(filepath.Join(t.TempDir(), "rules.db"), "rules", nil)
	require.NoError(t, os.WriteFile(s.path, data, 0o600))
	return s
}

// differing is how many objects of the last of tables are gone, or are what they were earlier. No object may be anything else.
func differing(t *testing.T, kept *Kept, tables []*memstore.Table) (n int) {
	now := make(map[resource.Key]*resource.Resource)
	for _, r := range kept.Resources {
		now[r.Key()] = r
	}
	for want := range tables[len(tables)-1].Snapshot().All() {
		is := now[want.Key()]
		delete(now, want.Key())
		if is != nil && resource.Equal(is, want) {
			continue
		}
		n++
		known := is == nil
		for _, table := range tables {
			known = known || resource.Equal(is, table.Snapshot().Get(is.Key()))
		}
		require.True(t, known, "%s was never so", want.Key())
	}
	require.Empty(t, now)
	return n
}

// What is cut off is as if it had not been written, to the last commit.
func TestTruncatedAtEveryByte(t *testing.T) {
	data, tables, ends := written(t, 3, 20, 10)
	for n := range len(data) + 1 {
		kept, err := loaded(data[:n])
		if n < ends[0] {
			require.ErrorIs(t, err, errDamaged, "%d bytes", n)
			continue
		}
		require.NoError(t, err)
		commits := 0
		for commits < len(ends) && ends[commits] <= n {
			commits++
		}
		requireKept(t, tables[commits-1], kept)
		require.Zero(t, kept.lost)
		require.Equal(t, ends[commits-1], int(kept.end))
	}
}

func TestTruncatedFileIsSetAside(t *testing.T) {
	data, _, ends := written(t, 3, 100, 100)
	s := put(t, data[:ends[0]/2])
	s.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }
	kept, err := s.Load()
	require.Nil(t, kept)
	aside := s.path + ".damaged-20260102T030405.000000006Z"
	require.ErrorContains(t, err, "; it was set aside as "+aside)
	require.FileExists(t, aside)
	require.NoFileExists(t, s.path)
}

// A bit that is another one costs at most the record that it is in; that of a commit costs what was written with it, if it was the last.
func TestEveryBitOfASmallFile(t *testing.T) {
	data, tables, ends := written(t, 3, 3, 1)
	for i := range data {
		bit := byte(1) << rand.N(8)
		data[i] ^= bit
		kept, err := loaded(data)
		data[i] ^= bit
		require.NoError(t, err)
		most := 1
		if i >= ends[1] {
			most = 3
		}
		require.LessOrEqual(t, differing(t, kept, tables), most, "byte %d", i)
		require.Equal(t, 1, kept.lost)
		require.Empty(t, kept.Prints, "a group may lack an object")
		require.LessOrEqual(t, kept.firstAt, int64(i))
	}
}

// Of a file with one commit, the commit itself is needed.
func TestWithoutAWholeCommit(t *testing.T) {
	data, _, ends := written(t, 1, 3, 1)
	data[ends[0]-1] ^= 1
	_, err := loaded(data)
	require.ErrorIs(t, err, errDamaged)
}

func TestBitsFlippedInALargeFile(t *testing.T) {
	data, tables, ends := written(t, 4, 200, 200)
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for range 500 {
		flipped := make(map[int]byte)
		for range 1 + rnd.IntN(4) {
			flipped[rnd.IntN(ends[2]-ends[1])] = byte(1) << rnd.IntN(8)
		}
		for i, bit := range flipped {
			data[i] ^= bit
		}
		kept, err := loaded(data)
		for i, bit := range flipped {
			data[i] ^= bit
		}
		require.NoError(t, err)
		require.LessOrEqual(t, differing(t, kept, tables), len(flipped))
		require.LessOrEqual(t, kept.lost, len(flipped))
		require.Positive(t, kept.lost)
	}
}

// A hole, as of a disk that loses a write, costs the records in it.
func TestHoles(t *testing.T) {
	data, tables, _ := written(t, 3, 100, 100)
	for from := 0; from+4096 < len(data); from += 511 {
		holed := bytes.Clone(data)
		clear(holed[from : from+4096])
		kept, err := loaded(holed)
		if err != nil {
			require.ErrorIs(t, err, errDamaged)
			continue
		}
		if from+8192 < len(data) { // else the last commit may be in it
			require.LessOrEqual(t, differing(t, kept, tables), 20)
			require.LessOrEqual(t, kept.lost, 2, "that of which the header is there, and the others")
			require.Positive(t, kept.lost)
		}
	}
}

// A damaged file is reported, and made anew when something is written.
func TestDamagedFilesAreNotGoneOnWith(t *testing.T) {
	data, tables, _ := written(t, 3, 300, 100)
	data[len(data)/4] ^= 1
	var log testutil.Buffer
	s := put(t, data)
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	kept, err := s.Load()
	require.NoError(t, err)
	require.Regexp(t, `a state file is damaged: the rest of it is used" file=\S+rules.db damages=1 first_at_byte=\d+\n$`, log.String())
	require.LessOrEqual(t, differing(t, kept, tables), 1)
	now := synced(kept.Resources...)
	s.Continue(kept, now.Snapshot().Revision())
	w := s.writer()
	defer w.close()
	require.NoError(t, s.write(w, now))
	kept, err = s.Load()
	require.NoError(t, err)
	require.Zero(t, kept.lost)
	requireKept(t, now, kept)
}

// What a process that was killed has left at the end is cut off, which is reported, and the file is gone on with.
func TestTornEndIsCutOff(t *testing.T) {
	data, tables, ends := written(t, 3, 30, 10)
	for _, torn := range [][]byte{data[:len(data)-1], data[:ends[1]+5], append(bytes.Clone(data), make([]byte, 100)...)} {
		var log testutil.Buffer
		s := put(t, torn)
		s.log = slog.New(slog.NewTextHandler(&log, nil))
		kept, err := s.Load()
		require.NoError(t, err)
		require.Contains(t, log.String(), fmt.Sprintf("is cut off\" file=%s at_byte=%d", s.path, kept.end))
		table := synced(kept.Resources...)
		s.Continue(kept, table.Snapshot().Revision())
		w := s.writer()
		require.True(t, w.file.IsOpen())
		table.Apply([]*resource.Resource{made(1, "new")}, nil)
		require.NoError(t, s.write(w, table))
		w.close()
		kept, err = s.Load()
		require.NoError(t, err)
		require.Zero(t, kept.lost)
		requireKept(t, table, kept)
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
		s := put(t, data)
		_, err := s.Load()
		require.ErrorIs(t, err, errDamaged, name)
		require.ErrorContains(t, err, s.path+" is not used: damaged, or not written by this version of tributary; it was set aside as ")
	}
}

func TestUnreadableFileIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	require.NoError(t, os.Mkdir(path, 0o700))
	_, err := newStore(path, "rules", nil).Load()
	require.ErrorContains(t, err, "set aside")
	save(t, path, synced(made(1, "one")))
}

// FuzzRecord holds the decoding of records to refusing, and never panicking or running forever on, whatever is in one.
func FuzzRecord(f *testing.F) {
	r := made(1, "one").WithOriginal(made(1, "before"))
	f.Add(record{recordKey(r.Key()), encode(r, r, made(1, "said"), true)}.appendTo(nil)[12:])
	f.Add([]byte("no record"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if r, err := decodeRecord(data); err == nil {
			_, _, _ = decode(key(1), r.value, "rules")
		}
	})
}
