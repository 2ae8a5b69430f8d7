package admin

import (
	"cmp"
	"errors"
	"net/http"

	"tributary/internal/words"
	"tributary/sources"
	"tributary/sources/guard"
)

// Guarded is an entry of /debug/guard: a source with a loss on hold.
type Guarded struct {
	Source string `json:"source"`
	guard.Status
}

// Guarded returns the sources with a loss on hold. It is not nil.
func (s *Server) Guarded() []Guarded {
	guarded := []Guarded{}
	for _, source := range s.opts.Sources.Status() {
		if source.Held != nil {
			guarded = append(guarded, Guarded{source.Name, *source.Held})
		}
	}
	return guarded
}

// release ends the hold of ?source= on behalf of ?by=. It answers 404 without such a source, and 409 if the hold is not
// ?hold=, or there is none.
func (s *Server) release(response http.ResponseWriter, request *http.Request) error {
	name := request.URL.Query().Get("source")
	if name == "" {
		return badRequest("want ?source=NAME")
	}
	objects, endpoints, err := s.opts.Sources.Release(name, request.URL.Query().Get("hold"), asker(request))
	switch {
	case errors.Is(err, sources.ErrNotFound):
		return &failure{http.StatusNotFound, err}
	case errors.Is(err, sources.ErrNothingHeld), errors.Is(err, sources.ErrOtherHold):
		return &failure{http.StatusConflict, err}
	case err != nil:
		return err
	}
	return reply(response, "%s and %s of %s are let go", words.Count(objects, "object", "objects"),
		words.Count(endpoints, "endpoint", "endpoints"), name)
}

// longestName limits the logged bytes of a name in a request.
const longestName = 200

// asker returns the name of the user, as the request gives it, and the address.
func asker(r *http.Request) string {
	name := cmp.Or(r.URL.Query().Get("by"), "somebody")
	name = name[:min(len(name), longestName)] + ", from " + r.RemoteAddr
	if via := r.Header.Get("X-Forwarded-For"); via != "" {
		name += " on behalf of " + via[:min(len(via), longestName)]
	}
	return name
}
