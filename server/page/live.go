package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"sync"
	"time"

	"tributary/internal/words"
	"tributary/memstore"
	"tributary/server/admin"
	"tributary/server/xds"
)

const (
	// maxLive is how many pages are told of changes at once. Others ask again from time to time. It leaves some of the connections of the
	// admin server to others.
	maxLive = 12
	// interval is how often it is looked whether something has changed, while anybody wants to know.
	interval = 500 * time.Millisecond
	// patience is how long a browser may take to read an event. One that is slower is dropped; it comes again by itself.
	patience = 5 * time.Second
	// silence is after how long a page is told that nothing has changed, so that it knows that we are alive, and we that it is.
	silence = 10 * time.Second
	// share is what part of the time may be spent on looking.
	share = 10
)

// latest is the condition of the program, looked at once for all who want to know at about the same time.
type latest struct {
	program Program

	mu  sync.Mutex
	at  time.Time
	now moment
	// took is how long it took to look.
	took time.Duration
}

// moment is the condition of the program at one time. It must not be modified.
type moment struct {
	status   admin.Status
	clients  []xds.ClientStatus
	recent   recent
	revision string // differs if anything that is shown does, but for how long ago it was
}

func (l *latest) get() moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	if age := time.Since(l.at); !l.at.IsZero() && age < max(interval*4/5, l.took*share) {
		return l.now
	}
	began := time.Now()
	m := moment{status: l.program.Status(), clients: l.program.Clients()}
	revision := l.program.Snapshot().Revision()
	m.recent = changesAt(l.program, revision, l.now.recent)
	m.revision = revisionOf(&m, revision)
	l.at = time.Now()
	l.took, l.now = l.at.Sub(began), m
	return m
}

// revisionOf is a hash of what is shown.
func revisionOf(m *moment, revision memstore.Revision) string {
	status := m.status
	status.Uptime = ""
	status.Clients = nil // they are hashed with all of their types
	sum := fnv.New64a()
	e := json.NewEncoder(sum)
	err := errors.Join(e.Encode(status), e.Encode(revision), e.Encode(m.recent.answer.Entries))
	for i := range m.clients {
		err = errors.Join(err, e.Encode(clientOf(&m.clients[i])))
	}
	if err != nil {
		return "" // none of it fails to be encoded; if it did, the page would be new at each load only
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}

// event is what a page is told.
type event struct {
	Revision string `json:"revision"`
	Class    string `json:"class"`
	Sentence string `json:"sentence"`
}

// events tells a page when something has changed, in events of server-sent events (HTML standard, 9.2): the newest state, never what was
// before it, so that nothing is queued.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	select {
	case h.room <- struct{}{}:
		defer func() { <-h.room }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "as many pages are open as are told of changes", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy would keep them back
	control := http.NewResponseController(w)
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	told, toldAt := "", time.Time{}
	for {
		if now := h.latest.get(); now.revision != told || time.Since(toldAt) > silence {
			v := verdictOf(&now.status, query{}, Shell{})
			data, err := json.Marshal(event{now.revision, v.Class, words.Printable(v.Sentence, "")})
			if err == nil {
				err = control.SetWriteDeadline(time.Now().Add(patience))
			}
			if err == nil {
				_, err = fmt.Fprintf(w, "event: state\ndata: %s\n\n", data)
			}
			if err = errors.Join(err, control.Flush()); err != nil {
				h.log.Debug("a page is no longer told of changes", "peer", r.RemoteAddr, "err", err)
				return
			}
			told, toldAt = now.revision, time.Now()
		}
		select {
		case <-ticks.C:
		case <-r.Context().Done():
			return
		case <-h.ended:
			return
		}
	}
}

// Close ends what tells pages of changes.
func (h *Handler) Close() { h.closed.Do(func() { close(h.ended) }) }
