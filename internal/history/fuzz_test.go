package history

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/disk"
	"tributary/internal/testutil"
	"tributary/memstore/storetest"
	"tributary/resource"
)

// FuzzRecord replaces a file of the history by random bytes: it is read up to the damage.
func FuzzRecord(f *testing.F) {
	r := storetest.New(resource.ServiceEntry, "shop", "a", "text")
	entry := newEntry(time.Unix(1, 0), nil, NewObject(r))
	frame, err := newFrame(*entry, slices.Values([]*Object{nil, entry.New}))
	require.NoError(f, err)
	f.Add(frame)
	f.Add(frame[disk.HeaderSize:])
	f.Add([]byte("{}\n\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Cost(t, len(data), perByte, func() {
			payload, err := disk.NewReader(bytes.NewReader(data), int64(len(data))).Next()
			if err != nil {
				payload = data
			}
			e := new(Entry)
			if err := e.decode(payload); err == nil {
				if _, err := e.unpack(); err == nil && e.New != nil {
					_ = e.New.Resource()
				}
			}
		})
	})
}

// perByte is the maximum cost of a byte that was compressed (a thousand to one at most) and decoded.
const perByte = 20_000
