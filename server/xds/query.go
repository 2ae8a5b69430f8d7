package xds

import (
	"slices"

	"tributary/server/xds/wire"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// answerQuery calls Query with the names of a request that asks something new, and removes them from it: the client gets the whole
// collection. Requests above heavyBytes are refused: they run under the heavy-work limit, where Query must not block.
func (s *subscription) answerQuery(query func([]string) error, r *wire.Request, first bool) error {
	if query == nil {
		return nil
	}
	if r.Size > heavyBytes {
		return status.Errorf(codes.InvalidArgument, "a query of %d bytes: the limit is %d", r.Size, heavyBytes)
	}
	names := slices.Concat(r.Names, r.Subscribe)
	r.Names, r.Subscribe, r.Unsubscribe = nil, nil, nil
	if !first && r.Nonce != "" && !s.isNewQuery(names) {
		return nil
	}
	s.lastQuery = names
	return query(names)
}

// isNewQuery says whether names differ from the last query. A delta acknowledgement has none.
func (s *subscription) isNewQuery(names []string) bool {
	return len(names) > 0 && !slices.Equal(names, s.lastQuery)
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
			of := Served{TypeURL: sub.typeURL, Version: sub.client.state.version}
			for e := range sub.client.state.all() {
				if _, notHeld := sub.client.notHeld[e.Name]; sub.wants.includes(e.Name) && !notHeld {
					of.Entries = append(of.Entries, e)
				}
			}
			all = append(all, of)
		}
	}
	return all
}
