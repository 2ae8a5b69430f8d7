package xds

// Served is what a client was sent of a type, and wants.
type Served struct {
	TypeURL string // as the client asked for it
	Version string
	Entries []*Entry // in order of name; they must not be modified
}

// Served returns what the client of a stream was sent, in the order of ClientStatus.Types; nil if there is no such stream. Who came back
// with versions that are still good is taken to have been sent those. What is on its way counts.
func (s *Server) Served(streamID uint64) (all []Served) {
	for _, st := range s.all() {
		if st.id != streamID {
			continue
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		for _, sub := range st.subs {
			of := Served{TypeURL: sub.typeURL, Version: sub.has.at.version}
			for e := range sub.has.at.all() {
				if _, lacks := sub.has.lacks[e.Name]; sub.wants.cover(e.Name) && !lacks {
					of.Entries = append(of.Entries, e)
				}
			}
			all = append(all, of)
		}
	}
	return all
}
