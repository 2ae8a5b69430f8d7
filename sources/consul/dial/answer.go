package dial

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// What is in front of a Consul may answer with anything: a page of megabytes with the status of an error, or one that does not
// end. No more of it is read than a Consul has to say.

const (
	// longestAnswer is far beyond the largest answer that is of use: 10,000 keys of 8 KiB each.
	longestAnswer = 128 << 20
	// longestError is as much of an answer as an error shows. That of a transaction that failed names a key twice.
	longestError = 4 << 10
)

// errNotConsul is of answers that no Consul gives.
var errNotConsul = errors.New("it is not Consul's")

// ErrTooMuch is of answers that list more than is taken.
var ErrTooMuch = errors.New("that is more than is taken")

// bound limits what is read of an answer, to a number of bytes if it is no error.
func bound(resp *http.Response, longest int) {
	if resp.StatusCode == http.StatusOK {
		resp.Body = &bounded{resp.Body, longest, fmt.Errorf("the answer is longer than %d MiB: %w", longest>>20, errNotConsul)}
		return
	}
	resp.Body = &bounded{resp.Body, longestError, io.EOF}
}

// bounded is a body that ends with last after left bytes.
type bounded struct {
	io.ReadCloser
	left int
	last error
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, b.last
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// Whole returns an error if something in a list that Consul answered with is null, as nothing in its answers is.
func Whole[T any](list []*T) error {
	for i, e := range list {
		if e == nil {
			return fmt.Errorf("item %d of %d is null: %w", i+1, len(list), errNotConsul)
		}
	}
	return nil
}
