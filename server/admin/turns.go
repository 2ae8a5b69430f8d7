package admin

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	turnWithin  = 10 * time.Second // the wait for a turn
	pageBytes   = 1 << 20          // a larger page is written within its turn
	turnToWrite = time.Second      // for the writes within a turn
	// pagesPerConnection bounds the memory for unread pages of a client.
	pagesPerConnection = 2
	readWithin         = 10 * time.Second // for 32 KiB of a page
	pageWithin         = 2 * time.Minute  // for a page
)

type pagesKey struct{}

// connContext adds the slots for pages of a connection to the context of its requests.
func connContext(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, pagesKey{}, make(chan struct{}, pagesPerConnection))
}

// turns has one slot for this machine and one for all others, so that neither waits for the other.
type turns struct{ local, remote chan struct{} }

func newTurns() turns { return turns{make(chan struct{}, 1), make(chan struct{}, 1)} }

// limit returns a handler that lets next make one page at a time. A request without a turn within turnWithin gets 503.
// The client reads a page of up to pageBytes after the turn. Writes fail if the client is gone, or reads too slowly.
func (t turns) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		turn := t.remote
		if fromThisMachine(request) {
			turn = t.local
		}
		late := time.NewTimer(turnWithin)
		defer late.Stop()
		connection, ok := request.Context().Value(pagesKey{}).(chan struct{})
		if !ok {
			connection = make(chan struct{}, 1)
		}
		if !enter(response, request, connection, late.C) {
			return
		}
		defer func() { <-connection }()
		if !enter(response, request, turn, late.C) {
			return
		}
		page := &pageWriter{
			ResponseWriter: response, control: http.NewResponseController(response), ctx: request.Context(),
			deadline: time.Now().Add(pageWithin),
			endTurn:  sync.OnceFunc(func() { <-turn }), writeTime: turnToWrite,
		}
		defer page.endTurn()
		next.ServeHTTP(page, request)
		page.endTurn()
		_ = page.flush() // the client is gone
	})
}

// enter takes a slot for a request, or answers with 503 when late fires.
func enter(
	response http.ResponseWriter, request *http.Request, slots chan<- struct{}, late <-chan time.Time,
) (entered bool) {
	select {
	case slots <- struct{}{}:
		return true
	case <-request.Context().Done():
	case <-late:
		response.Header().Set("Retry-After", "1")
		http.Error(response, "other requests are answered first: try again", http.StatusServiceUnavailable)
	}
	return false
}

// pageWriter is the http.ResponseWriter of a page.
type pageWriter struct {
	http.ResponseWriter

	buffer    bytes.Buffer
	control   *http.ResponseController
	ctx       context.Context //nolint:containedctx // of the request
	deadline  time.Time
	endTurn   func()
	writeTime time.Duration // for writes within the turn
}

func (w *pageWriter) Write(text []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	if w.buffer.Len()+len(text) <= pageBytes {
		return w.buffer.Write(text)
	}
	if err := w.flush(); err != nil {
		return 0, err
	}
	return w.send(text)
}

// flush writes the buffer to the client.
func (w *pageWriter) flush() error {
	defer w.buffer.Reset()
	_, err := w.send(w.buffer.Bytes())
	return err
}

// send writes to the client.
func (w *pageWriter) send(text []byte) (written int, err error) {
	started := time.Now()
	slow := time.AfterFunc(w.writeTime, w.endTurn)
	defer func() {
		slow.Stop()
		w.writeTime -= time.Since(started)
	}()
	for part := range slices.Chunk(text, 32<<10) {
		deadline := time.Now().Add(readWithin)
		if deadline.After(w.deadline) {
			deadline = w.deadline
		}
		if err := w.control.SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return written, err
		}
		count, err := w.ResponseWriter.Write(part)
		if written += count; err != nil {
			return written, err
		}
	}
	return written, nil
}
