package xds

import "slices"

// question has a type of questions put what it answers into its collection, unless the request only answers a response. Its names are
// questions, and not those of resources: of such a collection a client is sent everything.
func (s *subscription) question(ask func([]string) error, r *request, first bool) error {
	if ask == nil {
		return nil
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
