package lastgood

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	_ "tributary/internal/fixedseed" // of the property tests
	"tributary/memstore"
	"tributary/resource"
)

// written returns a file after n transactions, and the tables that it had after the last and the one before.
func written(t *testing.T, n, objects, size int) (data []byte, tables []*memstore.Table) {
	files, tables := versions(t, n, objects, size)
	return files[n-1], tables[max(0, n-2):]
}

// versions returns a file after each of n transactions, and the tables that it had then.
func versions(t *testing.T, n, objects, size int) (files [][]byte, tables []*memstore.Table) {
	path := filepath.Join(t.TempDir(), "rules.db")
	s := newStore(path, "rules", nil)
	w := &writer{own: anywhere, path: path, now: time.Now}
	table := synced()
	for step := range n {
		for i := range objects {
			if step == 0 || i%(step+1) == 0 {
				table.Apply([]*resource.Resource{made(i, fmt.Sprint(step, strings.Repeat("x", size)))}, nil)
			}
		}
		require.NoError(t, s.write(w, table))
		var rs []*resource.Resource
		for r := range table.Snapshot().All() {
			rs = append(rs, r)
		}
		tables = append(tables, synced(rs...))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		files = append(files, data)
	}
	w.close()
	return files, tables
}

// requireWhole checks that data, which was tampered with, is either refused or has the whole of one of tables.
func requireWhole(t *testing.T, data []byte, tables []*memstore.Table) (believed bool) {
	kept, err := parse(data, "rules")
	if err != nil {
		require.ErrorIs(t, err, errDamaged)
		return false
	}
	for _, table := range tables {
		if len(kept.Resources) == table.Snapshot().Len() && func() bool {
			for _, r := range kept.Resources {
				if !resource.Equal(r, table.Snapshot().Get(r.Key())) {
					return false
				}
			}
			return true
		}() {
			return true
		}
	}
	require.Fail(t, "something else was believed")
	return false
}

func TestTruncatedAtEveryByte(t *testing.T) {
	data, tables := written(t, 3, 20, 10)
	require.True(t, requireWhole(t, data, tables))
	p, _, err := openPages(data)
	require.NoError(t, err)
	end := int(p.end) * pageSize
	for n := range end {
		require.False(t, requireWhole(t, data[:n], tables), "%d bytes", n)
	}
	for n := end; n < len(data); n += 1009 { // what lies behind the end is not in use
		require.True(t, requireWhole(t, data[:n], tables), "%d bytes", n)
	}
}

func TestTruncatedFileIsSetAside(t *testing.T) {
	data, _ := written(t, 3, 100, 100)
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.db")
	require.NoError(t, os.WriteFile(path, data[:len(data)/2], 0o600))
	s := newStore(path, "rules", nil)
	s.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }
	kept, err := s.Load()
	require.Nil(t, kept)
	aside := path + ".damaged-20260102T030405.000000006Z"
	require.ErrorContains(t, err, "; it was set aside as "+aside)
	require.FileExists(t, aside)
	require.NoFileExists(t, path)
}

func TestEveryBitOfASmallFile(t *testing.T) {
	data, tables := written(t, 2, 3, 1)
	for i := range data {
		bit := byte(1) << rand.N(8)
		data[i] ^= bit
		requireWhole(t, data, tables)
		data[i] ^= bit
	}
}

func TestBitsFlippedInALargeFile(t *testing.T) {
	data, tables := written(t, 4, 200, 200)
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for range 500 {
		flipped := make(map[int]byte)
		for range 1 + rnd.IntN(4) {
			flipped[rnd.IntN(len(data))] = byte(1) << rnd.IntN(8)
		}
		for i, bit := range flipped {
			data[i] ^= bit
		}
		requireWhole(t, data, tables)
		for i, bit := range flipped {
			data[i] ^= bit
		}
	}
}

// TestDamagedFilesAreNotGoneOnWith goes on with a file in which a byte is another one, if it is believed all the same, and
// checks that this is as good as any.
func TestDamagedFilesAreNotGoneOnWith(t *testing.T) {
	data, tables := written(t, 3, 300, 100)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	wentOn := 0
	for range 400 {
		damaged := bytes.Clone(data)
		at := random.IntN(len(data))
		if random.IntN(2) == 0 { // the structure is in the beginning of pages
			at = at/pageSize*pageSize + random.IntN(200)
		}
		damaged[at] ^= 1 << random.IntN(8)
		path := filepath.Join(t.TempDir(), "rules.db")
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		s := newStore(path, "rules", nil)
		kept, err := s.Load()
		if err != nil || !kept.reusable || !requireWhole(t, damaged, tables) {
			continue
		}
		wentOn++
		now := synced(kept.Resources...)
		s.Continue(kept, now.Snapshot().Revision())
		w := s.writer()
		for i := range 8 {
			now.Apply([]*resource.Resource{made(random.IntN(400), fmt.Sprint("new", i))}, []resource.Key{key(random.IntN(300))})
			require.NoError(t, s.write(w, now))
		}
		w.close()
		after, err := s.Load()
		require.NoError(t, err)
		requireKept(t, now, after)
	}
	require.Positive(t, wentOn)
}

// TestPagesOfAnotherTime has what a disk that loses writes makes of a file: pages, one or several, that are as they were after an earlier
// transaction.
func TestPagesOfAnotherTime(t *testing.T) {
	const n = 6
	files, tables := versions(t, n, 60, 100)
	newest := files[n-1]
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test
	refused, believed := 0, 0
	for _, old := range files[:n-1] {
		pages := min(len(old), len(newest)) / pageSize
		for id := range pages {
			for _, more := range []int{0, 1 + random.IntN(4)} { // but not both beginnings, which are a whole file of another time
				mixed := bytes.Clone(newest)
				copy(mixed[id*pageSize:(id+1)*pageSize], old[id*pageSize:])
				for range more {
					at := 2 + random.IntN(pages-2)
					copy(mixed[at*pageSize:(at+1)*pageSize], old[at*pageSize:])
				}
				switch {
				case bytes.Equal(mixed, newest):
				case requireWhole(t, mixed, tables[n-2:]):
					believed++
				default:
					refused++
				}
			}
		}
	}
	require.Positive(t, refused)
	require.Positive(t, believed, "the last but one, or the last if these pages are not in use")
}

// TestPagesInEachOthersPlace has pages that were written to another place.
func TestPagesInEachOthersPlace(t *testing.T) {
	data, tables := written(t, 4, 60, 100)
	n := len(data) / pageSize
	for i := range n {
		for j := range n {
			swapped := append([]byte{}, data...)
			copy(swapped[i*pageSize:(i+1)*pageSize], data[j*pageSize:])
			requireWhole(t, swapped, tables)
		}
	}
}

// TestPagesThatEndEarly takes elements off pages, which are otherwise as they should be.
func TestPagesThatEndEarly(t *testing.T) {
	data, tables := written(t, 4, 200, 100)
	refused := 0
	for id := 2; id < len(data)/pageSize; id++ {
		count := data[id*pageSize+10:]
		n := native.Uint16(count)
		if n == 0 {
			continue
		}
		native.PutUint16(count, n-1)
		if !requireWhole(t, data, tables) {
			refused++
		}
		native.PutUint16(count, n)
	}
	require.NotZero(t, refused)
}

func TestBranchThatRefersToItselfEnds(t *testing.T) {
	data, tables := written(t, 1, 500, 200)
	loops := 0
	for id := range len(data) / pageSize {
		page := data[id*pageSize:]
		if native.Uint16(page[8:]) == branchPage {
			native.PutUint64(page[pageHeader+8:], uint64(id))
			loops++
		}
	}
	require.NotZero(t, loops)
	require.False(t, requireWhole(t, data, tables))
}

func TestForeignFiles(t *testing.T) {
	foreign := filepath.Join(t.TempDir(), "foreign.db")
	db, err := bbolt.Open(foreign, 0o600, &bbolt.Options{PageSize: pageSize})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("other"))
		return err
	}))
	require.NoError(t, db.Close())
	other, err := os.ReadFile(foreign)
	require.NoError(t, err)
	for name, data := range map[string][]byte{
		"empty": nil, "text": []byte("hello"), "zeros": make([]byte, 1<<16), "of another program": other,
	} {
		_, err := parse(data, "rules")
		require.ErrorIs(t, err, errDamaged, name)
	}
}

func TestNewerFormatIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	save(t, path, synced(made(1, "one")))
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		require.NoError(t, meta.Put([]byte("unknown"), []byte("x")))
		return meta.Put(keyFormat, seal(keyFormat, []byte("2")))
	}))
	require.NoError(t, db.Close())
	_, err = newStore(path, "rules", nil).Load()
	require.ErrorIs(t, err, errNewer)
	require.ErrorContains(t, err, path+".newer-")
	require.NoFileExists(t, path)
}

func TestUnreadableFileIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.db")
	require.NoError(t, os.Mkdir(path, 0o700))
	_, err := newStore(path, "rules", nil).Load()
	require.ErrorContains(t, err, "set aside")
	save(t, path, synced(made(1, "one")))
}

// TestPagesReadsWhatBoltWrites compares the reading of pages with bbolt's own.
func TestPagesReadsWhatBoltWrites(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprintf("%d.db", n))
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{
			PageSize: pageSize, NoSync: true, NoFreelistSync: true,
			FreelistType: bbolt.FreelistMapType,
		})
		require.NoError(t, err)
		names := []string{"a", "b", "c"}
		for range rapid.IntRange(1, 8).Draw(t, "transactions") {
			require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte(rapid.SampledFrom(names).Draw(t, "bucket")))
				require.NoError(t, err)
				for range rapid.IntRange(0, 200).Draw(t, "writes") {
					k := fmt.Appendf(nil, "key %d", rapid.IntRange(0, 300).Draw(t, "key"))
					if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
						require.NoError(t, b.Delete(k))
					} else {
						require.NoError(t, b.Put(k, make([]byte, rapid.SampledFrom([]int{0, 10, 500, 5000, 20000}).Draw(t, "size"))))
					}
				}
				return nil
			}))
		}
		type pair struct{ key, value string }
		want := make(map[string][]pair)
		require.NoError(t, db.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
				want[string(name)] = nil
				return b.ForEach(func(k, v []byte) error {
					want[string(name)] = append(want[string(name)], pair{string(k), string(v)})
					return nil
				})
			})
		}))
		require.NoError(t, db.Close())

		data, err := os.ReadFile(path)
		require.NoError(t, err)
		p, root, err := openPages(data)
		require.NoError(t, err)
		buckets, err := p.buckets(root)
		require.NoError(t, err)
		got := make(map[string][]pair)
		for name, each := range buckets {
			got[name] = nil
			require.NoError(t, each(func(k, v []byte) error {
				got[name] = append(got[name], pair{string(k), string(v)})
				return nil
			}))
		}
		require.Equal(t, want, got)
		require.False(t, p.trusting)
	})
}

// FuzzParse holds parse to refusing, and never panicking or running forever on, whatever is in a file.
func FuzzParse(f *testing.F) {
	path := filepath.Join(f.TempDir(), "rules.db")
	save(f, path, synced(made(1, "one"), made(2, "two")))
	data, err := os.ReadFile(path)
	require.NoError(f, err)
	p, _, err := openPages(data)
	require.NoError(f, err)
	f.Add(data[:p.end*pageSize])
	f.Add([]byte("no bbolt file"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = parse(data, "rules")
	})
}
