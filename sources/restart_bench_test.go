package sources

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/lastgood"
)

// BenchmarkRestart measures the time from the start of a source until its last published objects are in its table,
// verified and entered in the ledger.
func BenchmarkRestart(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) {
			state, err := lastgood.Open(b.TempDir(), nil)
			require.NoError(b, err)
			defer state.Close() //nolint:errcheck // only locked
			table := new(memstore.Table)
			var rs []*resource.Resource
			for i := range n {
				r := newObject(fmt.Sprintf("s%06d", i), fmt.Sprintf("%0400d", i), "a.yaml:1")
				rs = append(rs, r.WithOrigin(resource.Origin{Source: "a", Place: "a.yaml:1", Group: fmt.Sprintf("a%d.yaml", i)}))
			}
			table.Apply(rs, nil)
			table.MarkSynced()
			ctx, cancel := context.WithCancel(b.Context())
			cancel()
			state.Source("a").Run(ctx, table)
			for b.Loop() {
				restored := new(memstore.Table)
				s := NewSupervisor(Options{})
				require.NoError(b, s.Reconfigure([]Spec{{Name: "a", Table: restored, LastGood: state.Source("a")}}))
				require.Equal(b, n, restored.Snapshot().Len())
			}
		})
	}
}
