package admin

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
)

const (
	// turnWithin is how long a request waits for its turn before it is refused.
	turnWithin = 10 * time.Second
	// readWithin is how long a client may take to read 32 KiB of a page. pageWithin is how long it may take to read all of it.
	readWithin, pageWithin = 10 * time.Second, 2 * time.Minute
)

// turns bounds how many requests are answered at once: one of this machine and one of all others, so that neither waits for the other.
type turns struct{ local, remote chan struct{} }

func newTurns() turns { return turns{make(chan struct{}, 1), make(chan struct{}, 1)} }

// limit returns a handler that answers a request of next when it is its turn, or with 503 if its turn does not come within turnWithin.
// What next writes fails as soon as the client is gone, or reads too slowly.
func (t turns) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn := t.remote
		if comesFromHere(r) {
			turn = t.local
		}
		late := time.NewTimer(turnWithin)
		defer late.Stop()
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-r.Context().Done():
			return
		case <-late.C:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "other requests are answered first: try again", http.StatusServiceUnavailable)
			return
		}
		out := &pageWriter{ResponseWriter: w, control: http.NewResponseController(w), ctx: r.Context(), until: time.Now().Add(pageWithin)}
		out.buffer = bufio.NewWriterSize(writerFunc(out.send), 32<<10)
		next.ServeHTTP(out, r)
		_ = out.buffer.Flush() // the client is gone
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// pageWriter is the http.ResponseWriter of a page.
type pageWriter struct {
	http.ResponseWriter

	buffer  *bufio.Writer
	control *http.ResponseController
	ctx     context.Context //nolint:containedctx // of the request
	until   time.Time
}

func (w *pageWriter) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.buffer.Write(b)
}

func (w *pageWriter) send(b []byte) (int, error) {
	deadline := time.Now().Add(readWithin)
	if deadline.After(w.until) {
		deadline = w.until
	}
	if err := w.control.SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
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
