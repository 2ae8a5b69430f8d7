package intake

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// The memory of the decoded form of a text in addition to its bytes. In JSON `{},` may become a struct of half a
// kilobyte, and `"a":1,` an entry of a map. Objects that real servers send take less than they are counted as.
const (
	memberBytes = 64
	objectBytes = 512
)

// TextBytes estimates the memory of a text of JSON with its decoded form.
func TextBytes(text []byte) int {
	return len(text) + memberBytes*bytes.Count(text, []byte{','}) + objectBytes*bytes.Count(text, []byte{'{'})
}

// maxDuration limits the time from the first byte of an answer to its end, since other answers wait for its memory.
const maxDuration = time.Minute

var errSlow = fmt.Errorf("the answer is not complete %s after it began", maxDuration)

// Bound counts the body of a response until it is closed, so that the count includes the decoded form. The context of
// the request names the source.
func Bound(response *http.Response) *http.Response {
	ctx := response.Request.Context()
	if response.StatusCode == http.StatusSwitchingProtocols { // the body is a connection, which outlives the context
		_ = response.Body.Close()
		response.Body = http.NoBody
	}
	_, lease := Begin(ctx)
	response.Body = &body{ReadCloser: response.Body, ctx: ctx, host: response.Request.URL.Host, lease: lease}
	return response
}

// Next ends an answer in a body of Bound, such as one event of a watch, and begins the next one with the next byte. A
// body that waits for bytes takes no memory.
func Next(r io.Reader) {
	if b, ok := r.(*body); ok {
		b.end()
	}
}

type body struct {
	io.ReadCloser

	ctx   context.Context //nolint:containedctx // of the request
	host  string
	lease *Lease
	timer *time.Timer // from the first byte on
	slow  atomic.Bool
	err   error
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), chunkBytes)])
	if b.slow.Load() {
		err = errors.Join(errSlow, err)
	}
	if b.timer == nil && n > 0 {
		b.timer = time.AfterFunc(maxDuration, func() {
			b.slow.Store(true)
			_ = b.ReadCloser.Close() // so that a waiting Read returns
		})
	}
	if wrong := cmp.Or(b.lease.pace(b.ctx, n), b.lease.Take(b.ctx, TextBytes(p[:n]))); wrong != nil {
		b.err = fmt.Errorf("%s: %w", b.host, wrong)
		return 0, b.err
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

func (b *body) end() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	b.lease.Release()
}
