package admin

import (
	"encoding/json"
	"net/http"
	"time"
)

// Seen says when each object of a kind was first seen here, by "namespace/name". Clients are not told, since each replica
// has times of its own.
type Seen map[string]time.Time

func (s *Server) seen(w http.ResponseWriter, r *http.Request) {
	schema, ok := kindNamed(w, r.URL.Query().Get("kind"))
	if !ok {
		return
	}
	times := Seen{}
	for o := range s.opts.View.Snapshot().List(schema.Kind, "") {
		if at := o.Seen(); !at.IsZero() {
			times[o.Key().FullName()] = at
		}
	}
	w.Header().Set("Content-Type", "application/json")
	s.logWrite(r.URL.Path, json.NewEncoder(w).Encode(times))
}
