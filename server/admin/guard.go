package admin

import (
	"errors"
	"net/http"

	"tributary/internal/words"
	"tributary/sources"
	"tributary/sources/guard"
)

// Guarded is an entry of /debug/guard: a source of which a loss is held.
type Guarded struct {
	Source string `json:"source"`
	guard.Status
}

// Guarded are the sources of which a loss is held. It is not nil.
func (s *Server) Guarded() []Guarded {
	all := []Guarded{}
	for _, src := range s.opts.Sources.Status() {
		if src.Held != nil {
			all = append(all, Guarded{src.Name, *src.Held})
		}
	}
	return all
}

// release lets what is held of ?source= go, if it is ?hold= or that is not given, on behalf of ?by=: 404 if there is no such
// source, 409 if nothing of it is held, or another loss.
func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("source")
	if name == "" {
		http.Error(w, "want ?source=NAME", http.StatusBadRequest)
		return
	}
	objects, endpoints, err := s.opts.Sources.Release(name, r.URL.Query().Get("hold"), asker(r))
	switch {
	case errors.Is(err, sources.ErrNotFound):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, sources.ErrNothingHeld), errors.Is(err, sources.ErrOtherHold):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		reply(w, "%s and %s of %s are let go", words.Count(objects, "object", "objects"),
			words.Count(endpoints, "endpoint", "endpoints"), name)
	}
}

// longestName is how much of a name that a request gives is logged.
const longestName = 200

// asker says who asks, as far as is known, and from where.
func asker(r *http.Request) string {
	by := r.URL.Query().Get("by")
	if by == "" {
		by = "somebody"
	}
	by = by[:min(len(by), longestName)] + ", from " + r.RemoteAddr
	if via := r.Header.Get("X-Forwarded-For"); via != "" {
		by += " on behalf of " + via[:min(len(via), longestName)]
	}
	return by
}

// held describes the loss that a source holds.
func held(source string, all []sources.Status) (losses []Held) {
	for _, src := range all {
		if h := src.Held; src.Name == source && h != nil {
			losses = append(losses, Held{Source: source, ID: h.ID, Why: h.Why, Since: h.Since, Until: h.Until})
		}
	}
	return losses
}
