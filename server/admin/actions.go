package admin

import (
	"errors"
	"log/slog"
	"net/http"

	"tributary/internal/words"
)

// kick ends the streams of the client ?node=. It answers 404 if no such client is connected.
func (s *Server) kick(response http.ResponseWriter, request *http.Request) error {
	node := request.URL.Query().Get("node")
	if node == "" || s.opts.Kick == nil {
		return badRequest("want ?node=NODE")
	}
	count := s.opts.Kick(node)
	if count == 0 {
		return &failure{http.StatusNotFound, errors.New("no client with this node ID is connected: see tributary status")}
	}
	s.log.Warn("streams of a client ended on request", "node_id", node, "streams", count, "by", callerName(request))
	return reply(response, "%s ended; the client reconnects", words.Count(count, "stream", "streams"))
}

// logLevel changes the level of the log to ?level=.
func (s *Server) logLevel(response http.ResponseWriter, request *http.Request) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(request.URL.Query().Get("level"))); err != nil || s.opts.Level == nil {
		return badRequest("want debug, info, warn or error as the level")
	}
	previous := s.opts.Level.Level()
	s.log.Warn("log level changed", "from", previous.String(), "to", level.String(), "by", callerName(request))
	s.opts.Level.Set(level)
	return reply(response, "log level %s, before %s", level, previous)
}
