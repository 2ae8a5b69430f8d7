package admin

import (
	"log/slog"
	"net/http"

	"tributary/internal/words"
)

// kick ends the streams of ?node=, on behalf of ?by=: 404 if no such client is connected.
func (s *Server) kick(w http.ResponseWriter, r *http.Request) {
	node := r.URL.Query().Get("node")
	if node == "" || s.opts.Kick == nil {
		http.Error(w, "want ?node=NODE", http.StatusBadRequest)
		return
	}
	count := s.opts.Kick(node)
	if count == 0 {
		http.Error(w, "no client with this node ID is connected: see tributary status", http.StatusNotFound)
		return
	}
	s.log.Warn("streams of a client ended on request", "node_id", node, "streams", count, "by", asker(r))
	reply(w, "%s ended; the client reconnects", words.Count(count, "stream", "streams"))
}

// logLevel changes the level of the log to ?level=, on behalf of ?by=.
func (s *Server) logLevel(w http.ResponseWriter, r *http.Request) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(r.URL.Query().Get("level"))); err != nil || s.opts.Level == nil {
		http.Error(w, "want debug, info, warn or error as the level", http.StatusBadRequest)
		return
	}
	before := s.opts.Level.Level()
	s.log.Warn("log level changed", "from", before.String(), "to", level.String(), "by", asker(r))
	s.opts.Level.Set(level)
	reply(w, "log level %s, before %s", level, before)
}
