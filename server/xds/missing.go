package xds

// maxMissing is what the names may cost that one stream has asked for and that are not there, of a type whose resources are handed out by
// name only, or half of what its names may cost in all if that is less.
const maxMissing = 10_000

// missing are the names that a client was told are not there, the oldest first, and those that it is yet to be told of. Of a type that is
// handed out by name only it is others who think of them: whoever sends a request to an Envoy makes it ask for a host, and Envoy asks for
// that until it ends. So the oldest are forgotten, as if the client had not asked. Envoy 1.40 asks for them again when it comes back, and
// not before that.
type missing struct {
	most  int
	cost  int
	names map[string]struct{}
	order []string // and some that are not in names any more
}

func newMissing(l *Limits) *missing {
	m := &missing{most: maxMissing, names: make(map[string]struct{})}
	if l.NamesPerStream >= 0 {
		m.most = min(m.most, l.NamesPerStream/2)
	}
	return m
}

// add is for a name that is asked for and not there.
func (m *missing) add(name string) {
	if _, ok := m.names[name]; ok {
		return
	}
	m.names[name] = struct{}{}
	m.order = append(m.order, name)
	m.cost += nameCost(len(name))
}

// drop is for a name that is no longer asked for, or is there.
func (m *missing) drop(name string) {
	if _, ok := m.names[name]; !ok {
		return
	}
	delete(m.names, name)
	m.cost -= nameCost(len(name))
	if len(m.order) > 2*len(m.names)+16 {
		var order []string
		for _, name := range m.order {
			if _, ok := m.names[name]; ok {
				order = append(order, name)
			}
		}
		m.order = order
	}
}

// oldest returns the oldest of the names, of which there is one.
func (m *missing) oldest() string {
	for {
		name := m.order[0]
		if _, ok := m.names[name]; ok {
			return name
		}
		m.order = m.order[1:]
	}
}

// there says whether a resource is there, or the client has it.
func (s *subscription) there(name string) bool {
	return s.coll.shown.Load().get(name) != nil || s.has.at.get(name) != nil
}

// forget forgets names that are not there, the oldest first, until the others cost no more than most, and returns what those cost that it
// has forgotten. What is there is no longer among them.
func (s *subscription) forget(most int) (cost int) {
	for len(s.missing.names) > 0 && s.missing.cost > most {
		name := s.missing.oldest()
		s.missing.drop(name)
		if s.there(name) {
			continue
		}
		delete(s.wants.names, name)
		s.has.forget(name)
		cost += nameCost(len(name))
	}
	s.cost -= cost
	return cost
}

// forgetMissing forgets what is not there, and was said not to be, beyond what is remembered; s.mu is held.
func (s *stream) forgetMissing(sub *subscription) {
	if sub.missing != nil {
		_ = s.charge(-sub.forget(sub.missing.most)) // to have fewer names is never refused
	}
}

// chargeFor counts what a subscription costs more than it did, or less. Names that are not there are forgotten rather than that the stream
// is refused; s.mu is held.
func (s *stream) chargeFor(sub *subscription, more int) error {
	limit := s.server.opts.Limits.NamesPerStream
	if beyond := s.cost + more - limit; limit >= 0 && beyond > 0 && sub.missing != nil && sub.coll.Synced() {
		more -= sub.forget(max(sub.missing.cost-beyond, 0))
	}
	return s.charge(more)
}

// reduce makes of a request with more names than a stream may have one that has what is there of them, and of the others half as many as a
// stream may have, if the type is one of which others think of the names. A client that comes back asks for all at once.
func (s *stream) reduce(sub *subscription, req *request) error {
	if coll := s.collection(sub); req.tooMany() && sub.missing != nil && coll.Synced() {
		there, cost := coll.shown.Load(), 0
		if err := req.decodeKept(func(name []byte) bool {
			if there.get(string(name)) != nil {
				return true
			}
			cost += nameCost(len(name))
			return cost <= req.maxCost/2
		}); err != nil {
			return err
		}
	}
	return s.checkNames(req)
}
