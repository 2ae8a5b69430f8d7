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
	// maxLivePages limits the pages with a stream of events, so that connections are left for other requests. Further
	// pages poll.
	maxLivePages = 12
	// pollInterval is the period of checks for changes while a page is live.
	pollInterval = 500 * time.Millisecond
	// writeTimeout ends the stream of a browser that reads too slowly; the browser reconnects.
	writeTimeout = 5 * time.Second
	// heartbeat is the longest time without an event, so that both ends notice a broken connection.
	heartbeat = 10 * time.Second
	// pauseFactor sets the pause after a read of the state: at least this many times the duration of the read.
	pauseFactor = 10
)

// stateCache has the last read state of the program, for all pages that ask within a short time.
type stateCache struct {
	program Program

	mu      sync.Mutex
	readAt  time.Time
	current programState
	// readDuration is the duration of the last read.
	readDuration time.Duration
}

// programState is the state of the program at one time. It must not be modified.
type programState struct {
	status   admin.Status
	clients  []xds.ClientStatus
	recent   recentChanges
	revision string // a hash of the content of the page, without ages
}

// read returns the state. It reads it again if it is older than pollInterval, and if reads do not take too much time.
func (s *stateCache) read() programState {
	s.mu.Lock()
	defer s.mu.Unlock()
	maxAge := max(pollInterval*4/5, s.readDuration*pauseFactor)
	if !s.readAt.IsZero() && time.Since(s.readAt) < maxAge {
		return s.current
	}
	started := time.Now()
	next := programState{status: s.program.Status(), clients: s.program.Clients()}
	revision := s.program.Snapshot().Revision()
	next.recent = latestChanges(s.program, revision, s.current.recent)
	next.revision = hashState(&next, revision)
	s.readAt = time.Now()
	s.readDuration = s.readAt.Sub(started)
	s.current = next
	return next
}

// hashState hashes the content of the page, without ages.
func hashState(state *programState, revision memstore.Revision) string {
	status := state.status
	status.Uptime = ""
	status.Clients = nil // hashed below with their types
	hash64 := fnv.New64a()
	encoder := json.NewEncoder(hash64)
	err := errors.Join(encoder.Encode(status), encoder.Encode(revision), encoder.Encode(state.recent.answer.Entries))
	for _, client := range state.clients {
		err = errors.Join(err, encoder.Encode([]any{client.StreamID, client.Node.GetId(), client.Types}))
	}
	if err != nil {
		return "" // impossible; such a page would not refresh by itself
	}
	return fmt.Sprintf("%016x", hash64.Sum64())
}

// stateEvent is the data of an event.
type stateEvent struct {
	Revision string `json:"revision"`
	Class    string `json:"class"`
	Sentence string `json:"sentence"`
}

// events sends the newest state after each change as server-sent events (HTML standard, 9.2). A slow reader misses
// earlier states, so no queue is needed.
func (h *Handler) events(response http.ResponseWriter, request *http.Request) {
	select {
	case h.liveSlots <- struct{}{}:
		defer func() { <-h.liveSlots }()
	default:
		response.Header().Set("Retry-After", "10")
		message := fmt.Sprintf("too many live pages (%d): this one polls", maxLivePages)
		http.Error(response, message, http.StatusServiceUnavailable)
		return
	}
	response.Header().Set("Content-Type", "text/event-stream")
	response.Header().Set("Cache-Control", "no-store")
	response.Header().Set("X-Accel-Buffering", "no") // a proxy would buffer them
	control := http.NewResponseController(response)
	ticks := time.NewTicker(pollInterval)
	defer ticks.Stop()
	sentRevision, sentAt := "", time.Time{}
	for {
		current := h.cache.read()
		if current.revision != sentRevision || time.Since(sentAt) > heartbeat {
			verdict := newVerdict(&current.status, pageQuery{}, Shell{})
			data, err := json.Marshal(stateEvent{current.revision, verdict.Class, words.Printable(verdict.Sentence, "")})
			if err == nil {
				err = control.SetWriteDeadline(time.Now().Add(writeTimeout))
			}
			if err == nil {
				_, err = fmt.Fprintf(response, "event: state\ndata: %s\n\n", data)
			}
			if err = errors.Join(err, control.Flush()); err != nil {
				h.log.Debug("stream of page events ended", "peer", request.RemoteAddr, "err", err)
				return
			}
			sentRevision, sentAt = current.revision, time.Now()
		}
		select {
		case <-ticks.C:
		case <-request.Context().Done():
			return
		case <-h.stopped:
			return
		}
	}
}

// Close ends the streams of events.
func (h *Handler) Close() { h.closed.Do(func() { close(h.stopped) }) }
