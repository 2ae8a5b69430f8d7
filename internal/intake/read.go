package intake

import (
	"fmt"
	"io"
)

// Read reads all of r, which is no longer than most bytes. A longer one is an error that says so: what is cut off may look like something
// else. The transport has undone compression by then, so that this counts what is kept.
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
