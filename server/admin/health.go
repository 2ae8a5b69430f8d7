package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"tributary/internal/words"
)

func (s *Server) healthy(w http.ResponseWriter, _ *http.Request) error { return reply(w, "ok") }

// ready answers with the obstacles to serving, one in each line.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) error {
	obstacles := s.obstacles()
	if len(obstacles) == 0 {
		return reply(w, "ok")
	}
	return &failure{http.StatusServiceUnavailable, errors.New(strings.Join(obstacles, "\n"))}
}

// obstacles returns the obstacles to serving. Once the view is synced, it stays so: a source that fails later is still
// served, and one that a reload adds hides no objects while it is read.
func (s *Server) obstacles() (obstacles []string) {
	if s.draining.Load() {
		obstacles = append(obstacles, "shutting down")
	}
	if s.opts.View.Synced() {
		return obstacles
	}
	optional := make(map[string]bool)
	for _, source := range s.opts.View.Sources() {
		optional[source.Name] = source.Optional
	}
	for _, source := range s.opts.Sources.Status() {
		if source.Synced || source.Stale || optional[source.Name] { // a stale one serves the objects of an earlier run
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
