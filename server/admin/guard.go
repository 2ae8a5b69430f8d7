package admin

import (
	"cmp"
	"errors"
	"net/http"

	"tributary/internal/words"
	"tributary/sources"
	"tributary/sources/guard"
)

// HeldSource is an entry of /debug/guard: a source with a held loss.
type HeldSource struct {
	Source string `json:"source"`
	guard.Status
}

// HeldSources returns the sources with a held loss. The list is not nil.
func (s *Server) HeldSources() []HeldSource {
	held := []HeldSource{}
	for _, source := range s.opts.Sources.Status() {
		if source.Held != nil {
			held = append(held, HeldSource{source.Name, *source.Held})
		}
	}
	return held
}

// release ends the hold of ?source=. It answers 404 if there is no such source, and 409 if there is no hold or another
// one than ?hold=.
func (s *Server) release(response http.ResponseWriter, request *http.Request) error {
	name := request.URL.Query().Get("source")
	if name == "" {
		return badRequest("want ?source=NAME")
	}
	objects, endpoints, err := s.opts.Sources.Release(name, request.URL.Query().Get("hold"), callerName(request))
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

// maxNameBytes limits the bytes of a request's name in the log.
const maxNameBytes = 200

// callerName returns the name in ?by=, which is not verified, and the address that the request comes from.
func callerName(r *http.Request) string {
	name := cmp.Or(r.URL.Query().Get("by"), "somebody")
	name = name[:min(len(name), maxNameBytes)] + ", from " + r.RemoteAddr
	if via := r.Header.Get("X-Forwarded-For"); via != "" {
		name += " on behalf of " + via[:min(len(via), maxNameBytes)]
	}
	return name
}
