package intake

import (
	"fmt"
	"io"
)

// Read reads all of r, at most limit bytes. More bytes are an error, since a truncated text may parse as another one.
// The limit is for decompressed bytes, because HTTP's transport decompresses before.
func Read(r io.Reader, limit int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > limit {
		if limit < 1<<20 {
			return nil, fmt.Errorf("the answer has more than %d bytes", limit)
		}
		return nil, fmt.Errorf("the answer has more than %d MiB", limit>>20)
	}
	return text, nil
}
