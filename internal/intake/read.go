package intake

import (
	"fmt"
	"io"
)

// Read reads all of r, which is no longer than most bytes. A longer one is an error, since a truncated text may parse
// as another one. The transport has undone compression by then, so that the limit is for decompressed bytes.
func Read(r io.Reader, most int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > most {
		if most < 1<<20 {
			return nil, fmt.Errorf("the answer has more than %d bytes", most)
		}
		return nil, fmt.Errorf("the answer has more than %d MiB", most>>20)
	}
	return text, nil
}
