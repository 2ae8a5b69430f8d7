package admin

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"tributary/internal/words"
	"tributary/sources"
)

func (s *Server) healthy(w http.ResponseWriter, r *http.Request) {
	_, err := io.WriteString(w, "ok\n")
	s.logWrite(r.URL.Path, err)
}

// ready answers with what is in the way of serving, one a line. Once everything was read, a source that fails does not
// make the server unready: what was read is served on, and taking clients away would help nobody.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	text := "ok\n"
	if missing := s.missing(); len(missing) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = strings.Join(missing, "\n") + "\n"
	}
	_, err := io.WriteString(w, text)
	s.logWrite(r.URL.Path, err)
}

func (s *Server) missing() []string {
	var missing []string
	if s.draining.Load() {
		missing = append(missing, "shutting down")
	}
	if s.opts.View.Synced() { // for good: a source that a reload adds takes nothing away while it is read
		return missing
	}
	optional := make(map[string]bool)
	for _, src := range s.opts.View.Sources() {
		optional[src.Name] = src.Optional
	}
	for _, src := range s.opts.Sources.Status() {
		if !src.Synced && !src.Stale && !optional[src.Name] { // what an earlier run read is served as well
			missing = append(missing, notSynced(src))
		}
	}
	if len(missing) == 0 {
		missing = append(missing, "what the sources have read is being merged")
	}
	return missing
}

func notSynced(src sources.Status) string {
	line := fmt.Sprintf("source %s (%s) is not synced: %s", src.Name, src.Address, src.State)
	if src.Message != "" {
		line += ": " + src.Message
	}
	if src.LastError != "" {
		line += fmt.Sprintf("; restarted %s, last because: %s", words.Count(src.Restarts, "time", "times"), src.LastError)
	}
	return line
}
