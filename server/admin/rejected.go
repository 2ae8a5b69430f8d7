package admin

import (
	"time"

	"tributary/aggregate/conflicts"
	"tributary/resource"
)

// Rejected is an object in whose place Envoys are served what it was before, since they reject what is made of it.
type Rejected struct {
	conflicts.Ref
	Origin    string    `json:"origin"`
	Version   string    `json:"version"`          // that is rejected
	Serves    string    `json:"serves,omitempty"` // the version that is served; empty if the object is left out
	Since     time.Time `json:"since"`
	TypeURL   string    `json:"type_url"`  // of what is rejected
	Resources []string  `json:"resources"` // that are rejected, as far as is known
	Error     string    `json:"error"`     // as a client put it
	Node      string    `json:"node"`      // of that client
	Peer      string    `json:"peer"`
}

// rejected returns what Envoys reject, in order of key. It is not nil.
func (s *Server) rejected() []Rejected {
	if s.opts.Rejected == nil {
		return []Rejected{}
	}
	return append([]Rejected{}, s.opts.Rejected()...)
}

// rejectedObject returns what is said of an object that Envoys reject, or nil.
func (s *Server) rejectedObject(key resource.Key) *Rejected {
	for _, r := range s.rejected() {
		if r.Key() == key {
			return &r
		}
	}
	return nil
}
