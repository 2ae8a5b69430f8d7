package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"tributary/internal/words"
)

func (s *Server) healthy(w http.ResponseWriter, _ *http.Request) error { return reply(w, "ok") }

// ready answers with the obstacles to serving, one a line. A source that fails later does not make the server unready:
// its objects are still served.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) error {
	missing := s.missing()
	if len(missing) == 0 {
		return reply(w, "ok")
	}
	return &failure{http.StatusServiceUnavailable, errors.New(strings.Join(missing, "\n"))}
}

// missing returns the obstacles to serving.
func (s *Server) missing() (obstacles []string) {
	if s.draining.Load() {
		obstacles = append(obstacles, "shutting down")
	}
	if s.opts.View.Synced() { // for good: a source that a reload adds takes nothing away while it is read
		return obstacles
	}
	optional := make(map[string]bool)
	for _, source := range s.opts.View.Sources() {
		optional[source.Name] = source.Optional
	}
	for _, source := range s.opts.Sources.Status() {
		if source.Synced || source.Stale || optional[source.Name] { // objects of an earlier run are served as well
			continue
		}
		line := fmt.Sprintf("source %s (%s) is not synced: %s", source.Name, source.Address, source.State)
		if source.Message != "" {
			line += ": " + source.Message
		}
		if source.LastError != "" {
			restarts := words.Count(source.Restarts, "time", "times")
			line += fmt.Sprintf("; restarted %s, last because: %s", restarts, source.LastError)
		}
		obstacles = append(obstacles, line)
	}
	if len(obstacles) == 0 {
		obstacles = append(obstacles, "the objects of the sources are being merged")
	}
	return obstacles
}
