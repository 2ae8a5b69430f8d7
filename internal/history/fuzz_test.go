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
	r := storetest.New(resource.ServiceEntry, "shop", "a", "text")
	frame, err := newFrame(newEntry(time.Unix(1, 0), nil, NewObject(r)), "")
	require.NoError(f, err)
	f.Add(frame)
	f.Add(frame[disk.HeaderSize:])
	f.Add([]byte("\x02{}\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Cost(t, len(data), perByte, func() {
			payload, err := disk.NewReader(bytes.NewReader(data), int64(len(data))).Next()
			if err != nil {
				payload = data
			}
			r := new(record)
			if err := r.decode(payload); err == nil {
				if e, err := r.entry(); err == nil && e.New != nil {
					_ = e.New.Resource()
				}
			}
		})
	})
}

// perByte is what a byte may cost that was compressed, a thousand to one at the most, and decoded.
const perByte = 20_000
