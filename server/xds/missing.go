package xds

import (
	"container/list"

	"tributary/server/xds/wire"
)

// maxMissing is the largest cost of the names in missing.
const maxMissing = 10_000

// missing lists the nonexistent names that a client subscribed to, oldest first, for types with NoWildcard. Any request
// to an Envoy makes it subscribe to the request's host, and it never unsubscribes. So the oldest names are forgotten
// beyond maxMissing (or half of NamesPerStream). Envoy 1.40 subscribes to them again only on a new stream.
type missing struct {
	limit int
	cost  int
	names map[string]*list.Element // of order
	order list.List
}

func newMissing(limits *Limits) *missing {
	result := &missing{limit: maxMissing, names: make(map[string]*list.Element)}
	if limits.NamesPerStream >= 0 {
		result.limit = min(result.limit, limits.NamesPerStream/2)
	}
	return result
}

// add adds a nonexistent name.
func (m *missing) add(name string) {
	if m.names[name] == nil {
		m.names[name] = m.order.PushBack(name)
		m.cost += wire.NameCost(len(name))
	}
}

// remove removes a name that exists now, or that the client no longer wants.
func (m *missing) remove(name string) {
	if e := m.names[name]; e != nil {
		m.order.Remove(e)
		delete(m.names, name)
		m.cost -= wire.NameCost(len(name))
	}
}

// oldest returns the oldest of the names; there must be one.
func (m *missing) oldest() string {
	return m.order.Front().Value.(string) //nolint:errcheck,forcetypeassert // it has only names
}

// exists reports whether a resource exists, or the client has it.
func (s *subscription) exists(name string) bool {
	return s.coll.shown.Load().get(name) != nil || s.client.state.get(name) != nil
}

// forgetOldest forgets nonexistent names, the oldest first, until the rest costs no more than most, and returns the
// cost of the forgotten names.
func (s *subscription) forgetOldest(most int) (cost int) {
	for len(s.missing.names) > 0 && s.missing.cost > most {
		name := s.missing.oldest()
		s.missing.remove(name)
		if s.exists(name) {
			continue
		}
		delete(s.selection.names, name)
		s.client.forget(name)
		cost += wire.NameCost(len(name))
	}
	s.cost -= cost
	return cost
}

// forgetMissing forgets nonexistent names beyond the limit; s.mu is held.
func (s *stream) forgetMissing(sub *subscription) {
	if sub.missing != nil {
		_ = s.charge(-sub.forgetOldest(sub.missing.limit)) // a negative charge is never refused
	}
}

// chargeFor charges added (may be negative); over the limit it first forgets nonexistent names; s.mu is held.
func (s *stream) chargeFor(sub *subscription, added int) error {
	limit := s.server.opts.Limits.NamesPerStream
	if beyond := s.cost + added - limit; limit >= 0 && beyond > 0 && sub.missing != nil && sub.coll.Synced() {
		added -= sub.forgetOldest(max(sub.missing.cost-beyond, 0))
	}
	return s.charge(added)
}

// reduce drops from a request with too many names the nonexistent ones beyond half the limit (NoWildcard only).
func (s *stream) reduce(sub *subscription, request *wire.Request) error {
	if coll := s.collection(sub); request.TooMany() && sub.missing != nil && coll.Synced() {
		present := coll.shown.Load()
		cost := 0
		if err := request.DecodeFiltered(func(name []byte) bool {
			if present.get(string(name)) != nil {
				return true
			}
			cost += wire.NameCost(len(name))
			return cost <= request.MaxCost/2
		}); err != nil {
			return err
		}
	}
	return s.checkNames(request)
}
