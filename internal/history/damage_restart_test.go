package history

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// TestGap_DamagedRecordBeforeStart damages each record of a segment but the last one in turn, and restarts. The
// start neither invents a change from the lost record, nor does the history show a moment before the start without its
// object.
func TestGap_DamagedRecordBeforeStart(t *testing.T) {
	for damaged := range 5 {
		t.Run(fmt.Sprint(damaged), func(t *testing.T) {
			dir, table := t.TempDir(), new(memstore.Table)
			table.Apply([]*resource.Resource{newObject(0, "first")}, nil)
			history := opened(t, dir, DefaultSize, table)
			history.round(table)
			ends := []int64{history.files.last().size}
			for i := range 6 {
				table.Apply([]*resource.Resource{newObject(i, "second")}, nil)
				history.round(table)
				ends = append(ends, history.files.last().size)
			}
			time.Sleep(time.Millisecond) // two moments
			moment := time.Now()
			time.Sleep(time.Millisecond)
			require.NoError(t, history.files.current.Close())
			path := history.files.path(1, segmentSuffix)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			text[(ends[damaged]+ends[damaged+1])/2] ^= 1
			require.NoError(t, os.WriteFile(path, text, 0o600))

			history = opened(t, dir, DefaultSize, table)
			history.round(table)
			served, err := history.ServedAt(moment, resource.ServiceEntry)
			if _, unknown := errors.AsType[*EarlierError](err); !unknown {
				require.NoError(t, err)
				require.Len(t, served.Objects, 6, "unknown: %v", served.Unknown)
			}
			answer, err := history.Find(Query{Since: moment})
			require.NoError(t, err)
			require.Empty(t, answer.Entries, "no change is worked out across the gap")
		})
	}
}
