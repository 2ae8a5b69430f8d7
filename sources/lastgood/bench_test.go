package lastgood

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// filled returns a store of n resources of about 500 bytes, and their table.
func filled(b *testing.B, n int) (*Store, *memstore.Table, *writer) {
	store := newStore(filepath.Join(b.TempDir(), "rules.db"), "rules", nil)
	table := new(memstore.Table)
	var resources []*resource.Resource
	for i := range n {
		resources = append(resources, newObject(i, fmt.Sprint(i, strings.Repeat("x", 400))))
	}
	table.Apply(resources, nil)
	table.MarkSynced()
	w := store.writer()
	require.NoError(b, store.write(w, table))
	return store, table, w
}

// BenchmarkLoad measures a restart: reading, checking, and filling the table.
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) {
			s, _, w := filled(b, n)
			w.close()
			for b.Loop() {
				state, err := s.Load()
				require.NoError(b, err)
				table := new(memstore.Table)
				table.Apply(state.Resources, nil)
				require.Equal(b, n, table.Snapshot().Len())
			}
		})
	}
}

// BenchmarkOneChange measures the write of one changed object among many, with its fdatasync.
func BenchmarkOneChange(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) {
			store, table, writer := filled(b, n)
			defer writer.close()
			i := 0
			for b.Loop() {
				i++
				table.Apply([]*resource.Resource{newObject(n/2, fmt.Sprint(i, strings.Repeat("y", 400)))}, nil)
				require.NoError(b, store.write(writer, table))
			}
		})
	}
}

// BenchmarkRebuild measures the making of a file, once at each start.
func BenchmarkRebuild(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) {
			_, table, w := filled(b, n)
			defer w.close()
			for b.Loop() {
				require.NoError(b, w.rebuild(table, unguarded{}))
			}
		})
	}
}
