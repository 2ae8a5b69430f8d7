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

// TextBytes returns how much memory a text of JSON takes about, decoded.
func TextBytes(text []byte) int {
	return len(text) + memberBytes*bytes.Count(text, []byte{','}) + objectBytes*bytes.Count(text, []byte{'{'})
}

// longest is how long an answer may take once it has begun: it holds memory that others wait for.
const longest = time.Minute

var errSlow = fmt.Errorf("the answer is not complete %s after it began", longest)

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

// Next begins another answer in a body of Bound, such as the next event of a watch. A body that waits for it takes no
// memory.
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
		b.timer = time.AfterFunc(longest, func() {
			b.slow.Store(true)
			_ = b.ReadCloser.Close() // has Read return
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
