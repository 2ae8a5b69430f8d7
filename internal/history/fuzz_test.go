package history

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/disk"
	"tributary/internal/testutil"
	"tributary/memstore/storetest"
	"tributary/resource"
)

// FuzzRecord has anything in the place of a file of the history: it is read up to what is damaged.
func FuzzRecord(f *testing.F) {
	e := new(encoder)
	r := storetest.New(resource.ServiceEntry, "shop", "a", "text")
	require.NoError(f, e.add(head{Entry: *entryOf(time.Unix(1, 0), nil, r)}))
	f.Add(e.out)
	f.Add(e.out[disk.HeaderSize:])
	f.Add([]byte("\x02{}\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Cost(t, len(data), perByte, func() {
			payload, err := disk.NewReader(bytes.NewReader(data), int64(len(data))).Next()
			if err != nil {
				payload = data
			}
			if r, err := decode(payload); err == nil {
				if e, err := r.entry(); err == nil && e.New != nil {
					_ = e.New.Resource()
				}
			}
		})
	})
}

// perByte is what a byte may cost that was compressed, a thousand to one at the most, and decoded.
const perByte = 20_000
