package admin

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"tributary/server/transport"
)

const (
	// turnWithin is how long a request waits for its turn before it is refused.
	turnWithin = 10 * time.Second
	// pageBytes of a page are kept until its turn is over. A larger page is written within its turn, which ends after writes of turnToWrite.
	pageBytes, turnToWrite = 1 << 20, time.Second
	// pagesPerConnection bounds the memory for pages that a client does not read.
	pagesPerConnection = 2
	// readWithin is how long a client may take to read 32 KiB of a page. pageWithin is how long it may take to read all of it.
	readWithin, pageWithin = 10 * time.Second, 2 * time.Minute
)

type pagesKey struct{}

// connContext adds the bound of pages of a connection to the context of its requests.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(transport.ConnContext(ctx, conn), pagesKey{}, make(chan struct{}, pagesPerConnection))
}

// turns bounds how many pages are made at once: one for this machine and one for all others, so that neither waits for the other.
type turns struct{ local, remote chan struct{} }

func newTurns() turns { return turns{make(chan struct{}, 1), make(chan struct{}, 1)} }

// limit returns a handler that answers a request of next when it is its turn, or with 503 if its turn does not come within turnWithin.
// Clients read pages of up to pageBytes when the turn is over. What next writes fails as soon as the client is gone, or reads too slowly.
func (t turns) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn := t.remote
		if comesFromHere(r) {
			turn = t.local
		}
		late := time.NewTimer(turnWithin)
		defer late.Stop()
		connection, ok := r.Context().Value(pagesKey{}).(chan struct{})
		if !ok {
			connection = make(chan struct{}, 1)
		}
		if !enter(w, r, connection, late.C) {
			return
		}
		defer func() { <-connection }()
		if !enter(w, r, turn, late.C) {
			return
		}
		out := &pageWriter{
			ResponseWriter: w, control: http.NewResponseController(w), ctx: r.Context(), until: time.Now().Add(pageWithin),
			endTurn: sync.OnceFunc(func() { <-turn }), left: turnToWrite,
		}
		defer out.endTurn()
		next.ServeHTTP(out, r)
		out.endTurn()
		_ = out.flush() // the client is gone
	})
}

// enter takes a slot for a request, or answers it with 503 when late fires. A request that waits does not make its connection busy.
func enter(w http.ResponseWriter, r *http.Request, slots chan<- struct{}, late <-chan time.Time) (entered bool) {
	transport.Idle(r.Context(), func() {
		select {
		case slots <- struct{}{}:
			entered = true
		case <-r.Context().Done():
		case <-late:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "other requests are answered first: try again", http.StatusServiceUnavailable)
		}
	})
	return entered
}

// pageWriter is the http.ResponseWriter of a page.
type pageWriter struct {
	http.ResponseWriter

	buffer  bytes.Buffer
	control *http.ResponseController
	ctx     context.Context //nolint:containedctx // of the request
	until   time.Time
	endTurn func()
	left    time.Duration // for writes within the turn
}

func (w *pageWriter) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	if w.buffer.Len()+len(b) <= pageBytes {
		return w.buffer.Write(b)
	}
	if err := w.flush(); err != nil {
		return 0, err
	}
	return w.send(b)
}

// flush writes what is kept of the page to the client.
func (w *pageWriter) flush() error {
	defer w.buffer.Reset()
	_, err := w.send(w.buffer.Bytes())
	return err
}

// send writes to the client.
func (w *pageWriter) send(b []byte) (n int, err error) {
	begun := time.Now()
	slow := time.AfterFunc(w.left, w.endTurn)
	defer func() {
		slow.Stop()
		w.left -= time.Since(begun)
	}()
	for part := range slices.Chunk(b, 32<<10) {
		deadline := time.Now().Add(readWithin)
		if deadline.After(w.until) {
			deadline = w.until
		}
		if err := w.control.SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return n, err
		}
		m, err := w.ResponseWriter.Write(part)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// ownPages refuses requests that a web page of another site makes in a browser, except that it may lead to a page that is not below
// /debug/: such requests cost work even though the other site cannot read the answers.
func ownPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		leads := r.Header.Get("Sec-Fetch-Mode") == "navigate" && !strings.HasPrefix(r.URL.Path, indexPath)
		if (site == "cross-site" || site == "same-site") && !leads {
			denyForeign(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
