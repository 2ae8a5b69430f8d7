package xds

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// question has a type of questions put what it answers into its collection, unless the request only answers a response. Its names are
// questions, and not those of resources: of such a collection a client is sent everything. Those who answer may wait for each other, and
// large requests are taken in turns, in which nothing may be waited for: so they are no questions.
func (s *subscription) question(ask func([]string) error, r *request, first bool) error {
	if ask == nil {
		return nil
	}
	if r.size > heavyBytes {
		return status.Errorf(codes.InvalidArgument, "a question of %d bytes: the limit is %d", r.size, heavyBytes)
	}
	names := slices.Concat(r.names, r.subscribe)
	r.names, r.subscribe, r.unsub = nil, nil, nil
	if !first && r.nonce != "" && !s.asksElse(names) {
		return nil
	}
	s.questions = names
	return ask(names)
}

// asksElse says whether names are other questions than those that were asked last. In delta an acknowledgement has none.
func (s *subscription) asksElse(names []string) bool {
	return len(names) > 0 && !slices.Equal(names, s.questions)
}

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
