package admin

import (
	"errors"
	"log/slog"
	"net/http"

	"tributary/internal/words"
)

// kick ends the streams of ?node=, on behalf of ?by=: 404 if no such client is connected.
func (s *Server) kick(w http.ResponseWriter, r *http.Request) error {
	node := r.URL.Query().Get("node")
	if node == "" || s.opts.Kick == nil {
		return badRequest("want ?node=NODE")
	}
	count := s.opts.Kick(node)
	if count == 0 {
		return &failure{http.StatusNotFound, errors.New("no client with this node ID is connected: see tributary status")}
	}
	s.log.Warn("streams of a client ended on request", "node_id", node, "streams", count, "by", asker(r))
	return reply(w, "%s ended; the client reconnects", words.Count(count, "stream", "streams"))
}

// logLevel changes the level of the log to ?level=, on behalf of ?by=.
func (s *Server) logLevel(w http.ResponseWriter, r *http.Request) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(r.URL.Query().Get("level"))); err != nil || s.opts.Level == nil {
		return badRequest("want debug, info, warn or error as the level")
	}
	before := s.opts.Level.Level()
	s.log.Warn("log level changed", "from", before.String(), "to", level.String(), "by", asker(r))
	s.opts.Level.Set(level)
	return reply(w, "log level %s, before %s", level, before)
}
