package xds

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// answerQuery calls Query with the names of a request that asks something new, and removes them from it: the client gets the whole
// collection. Requests above heavyBytes are refused: they run under the heavy-work limit, where Query must not block.
func (s *subscription) question(ask func([]string) error, r *request, first bool) error {
	if ask == nil {
		return nil
	}
	if r.size > heavyBytes {
		return status.Errorf(codes.InvalidArgument, "a query of %d bytes: the limit is %d", r.size, heavyBytes)
	}
	names := slices.Concat(r.names, r.subscribe)
	r.names, r.subscribe, r.unsub = nil, nil, nil
	if !first && r.nonce != "" && !s.asksElse(names) {
		return nil
	}
	s.questions = names
	return ask(names)
}

// isNewQuery says whether names differ from the last query. A delta acknowledgement has none.
func (s *subscription) asksElse(names []string) bool {
	return len(names) > 0 && !slices.Equal(names, s.questions)
}

// Served has the resources of a type that a client wants and was sent.
type Served struct {
	TypeURL string // as the client asked for it
	Version string
	Entries []*Entry // in order of name; they must not be modified
}

// Served returns the resources that the client of a stream was sent, in the order of ClientStatus.Types; nil if there is no such stream.
// It includes those on their way, and those that a resuming client already had.
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
