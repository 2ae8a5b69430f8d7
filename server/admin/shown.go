package admin

import (
	"iter"
	"slices"

	"tributary/aggregate"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

// The page at / shows the same as the pages below /debug, and asks for it with these.

// Snapshot is what is served.
func (s *Server) Snapshot() memstore.Snapshot { return s.opts.View.Snapshot() }

// Clients are those to whom it is served, in order of arrival.
func (s *Server) Clients() []xds.ClientStatus { return slices.Collect(s.opts.Clients.EachClient()) }

// Quarantined returns the invalid objects and documents, which are not served. It is not nil.
func (s *Server) Quarantined() []Quarantined {
	return s.quarantinedIf(func(Quarantined) bool { return true })
}

// Shadows yields the keys that several sources have.
func (s *Server) Shadows() iter.Seq[aggregate.Shadow] { return s.opts.View.Shadows() }

// SpeakOf returns the objects that say something of a host.
func (s *Server) SpeakOf(host string) (keys []resource.Key) {
	for _, o := range s.opts.View.ExplainHost(host).Objects {
		keys = append(keys, o.Object.Key())
	}
	return keys
}

// IsHeld reports whether a source lost something of an object, and that is held.
func (s *Server) IsHeld(key resource.Key) bool {
	for _, one := range s.opts.Sources.Serving(key) {
		if one.Held {
			return true
		}
	}
	return false
}
