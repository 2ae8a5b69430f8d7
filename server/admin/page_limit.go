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

// Large pages cost much memory and CPU time, so one is made at a time. The handler of a page holds a slot while it
// makes the page. A slow reader does not hold the slot: a buffer takes the page, which is sent after the slot is free.
const (
	maxSlotWait   = 10 * time.Second // how long a request waits for a slot
	bufferBytes   = 1 << 20          // a larger page is sent while its handler still runs
	slotWriteTime = time.Second      // how long the handler of a larger page may send before the slot is free
	// pagesPerConnection bounds the memory for pages that a client does not read.
	pagesPerConnection = 2
	chunkBytes         = 32 << 10         // of one write
	chunkTimeout       = 10 * time.Second // limits the time that a client takes to read a chunk
	pageTimeout        = 2 * time.Minute  // limits the time until a client has read a page
)

type connectionSlotsKey struct{}

// withConnectionSlots adds slots, which the requests of a connection share, to their context.
func withConnectionSlots(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connectionSlotsKey{}, make(chan struct{}, pagesPerConnection))
}

// pageLimit has a slot for requests of this machine and one for all other requests, so that neither waits for the
// other.
type pageLimit struct{ local, remote chan struct{} }

func newPageLimit() pageLimit { return pageLimit{make(chan struct{}, 1), make(chan struct{}, 1)} }

// apply returns a handler that calls next for one request at a time. A request that gets no slot within maxSlotWait is
// answered with 503. For next, writes fail once the client is gone or reads too slowly.
func (l pageLimit) apply(next http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		slot := l.remote
		if fromThisMachine(request) {
			slot = l.local
		}
		timer := time.NewTimer(maxSlotWait)
		defer timer.Stop()
		connectionSlots, exists := request.Context().Value(connectionSlotsKey{}).(chan struct{})
		if !exists { // a test without connections
			connectionSlots = make(chan struct{}, 1)
		}
		if !acquireSlot(response, request, connectionSlots, timer.C) {
			return
		}
		defer func() { <-connectionSlots }()
		if !acquireSlot(response, request, slot, timer.C) {
			return
		}
		page := &pageWriter{
			ResponseWriter: response, control: http.NewResponseController(response), ctx: request.Context(),
			deadline:    time.Now().Add(pageTimeout),
			releaseSlot: sync.OnceFunc(func() { <-slot }), writeTime: slotWriteTime,
		}
		defer page.releaseSlot()
		next.ServeHTTP(page, request)
		page.releaseSlot()
		_ = page.flush() // an error means that the client is gone
	})
}

// acquireSlot takes a slot for a request. It answers with 503 if the timer fires first.
func acquireSlot(
	response http.ResponseWriter, request *http.Request, slots chan<- struct{}, timer <-chan time.Time,
) (acquired bool) {
	select {
	case slots <- struct{}{}:
		return true
	case <-request.Context().Done():
	case <-timer:
		response.Header().Set("Retry-After", "1")
		http.Error(response, "other requests are answered first: try again", http.StatusServiceUnavailable)
	}
	return false
}

// pageWriter is the http.ResponseWriter of a page. It has the first bufferBytes of a page in memory.
type pageWriter struct {
	http.ResponseWriter

	buffer      bytes.Buffer
	control     *http.ResponseController
	ctx         context.Context //nolint:containedctx // of the request
	deadline    time.Time
	releaseSlot func()
	writeTime   time.Duration // left until writes release the slot
}

func (w *pageWriter) Write(text []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	if w.buffer.Len()+len(text) <= bufferBytes {
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

// send writes to the client. It releases the slot when all writes of the page have taken slotWriteTime.
func (w *pageWriter) send(text []byte) (written int, err error) {
	started := time.Now()
	releaseTimer := time.AfterFunc(w.writeTime, w.releaseSlot)
	defer func() {
		releaseTimer.Stop()
		w.writeTime -= time.Since(started)
	}()
	for chunk := range slices.Chunk(text, chunkBytes) {
		deadline := time.Now().Add(chunkTimeout)
		if deadline.After(w.deadline) {
			deadline = w.deadline
		}
		if err := w.control.SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return written, err
		}
		count, err := w.ResponseWriter.Write(chunk)
		written += count
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
