package consul

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"tributary/sources/consul/dial"
	"tributary/sources/consul/mapping"
)

// Consul says when it leaves something out that a token may not see, but not what: that something else is hidden proves
// nothing about what is missing. To those who send no token it does not even say that. A token that was lost, in an emptied
// file or a variable that is not set after a restart, would look like services that have all gone. So where something is missing in
// such an answer, we ask whether we, or strangers, may see it.

// unmask finds out whether what is missing in an answer about s may be hidden.
func (r *run) unmask(ctx context.Context, s *service, answer *reading) error {
	r.account(s, answer)
	if !answer.Confirming || answer.anonymous == answer.Filtered {
		return nil
	}
	r.mu.Lock()
	p, listed, missing := s.part, s.listed, answer.instances.without(s.instances)
	if len(missing)+answer.lost == 0 && len(answer.instances.list) > 0 {
		r.mu.Unlock()
		return nil
	}
	needed := rights{}
	switch {
	case p.peer != "":
		needed.to("service", "") // who may read all
	case answer.lost > 0: // what an earlier run published may be on any node
		needed.to("node", slices.Collect(maps.Keys(p.nodes.believed))...)
	}
	r.mu.Unlock()
	if p.peer == "" {
		needed.to("service", s.name)
		for _, e := range missing {
			needed.to("node", e.Node.Node)
		}
	}
	if len(missing) == 0 && len(needed) == 1 && listed {
		needed.to("node", "") // its instances may be on any
	}
	may, err := r.decide(ctx, p, answer.anonymous, needed, &answer.Filtered)
	if !may || err != nil {
		return err
	}
	again, err := r.readNow(ctx, p, s.name, r.gate.ramp, certain)
	if err != nil {
		return err
	}
	// Of what was there when the rights were asked for and is not now nothing is known; the next one will tell.
	again.Filtered = again.anonymous != answer.anonymous || len(again.instances.without(answer.instances)) > 0
	r.account(s, &again)
	*answer = again
	return nil
}

// account finds out how much of what an earlier run published of s is missing in an answer, and in what is known of other domains.
func (r *run) account(s *service, answer *reading) {
	r.mu.Lock()
	if !s.restored {
		r.mu.Unlock()
		return
	}
	in := []mapping.Service{{Entries: answer.instances.list}}
	for other := range r.named(s.name) {
		if other != s {
			in = append(in, mapping.Service{Entries: other.instances.list})
		}
	}
	before := r.before[s.name]
	r.mu.Unlock()
	if r.lost != nil {
		answer.lost = r.lost(s.name, in)
	} else {
		answer.lost = mapping.Lost(before, in)
	}
}

// rights are a set of rights.
type rights map[dial.Right]bool

// to adds the right to read something of these names; an empty one stands for any.
func (r rights) to(resource string, names ...string) {
	for _, name := range names {
		r[dial.Right{Resource: resource, Name: name}] = true
	}
}

// decide makes filtered what the rights of whoever asked say of an answer. If they may see everything, that is so now, and the answer
// is of before: so the same has to be asked once more.
func (r *run) decide(ctx context.Context, p *part, anonymous bool, needed rights, filtered *bool) (may bool, err error) {
	may, err = r.catalog.mayRead(ctx, p.domain, anonymous, slices.SortedFunc(maps.Keys(needed), func(a, b dial.Right) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Name, b.Name))
	}))
	switch {
	case err != nil && *filtered:
		return false, nil // an old Consul, or a proxy in front of it: then we go by what was said
	case ownFault(dial.Classify(err)): // no service is at fault
		return false, &dial.Error{Failure: dial.Failure{Kind: dial.Unreachable}, Err: err}
	case err != nil:
		return false, err
	}
	*filtered = !may
	return may, nil
}

// unmaskNames does the same for the names of p.
func (r *run) unmaskNames(ctx context.Context, p *part, l *listing) error {
	if !l.Confirming || l.anonymous == l.Filtered {
		return nil
	}
	r.mu.Lock()
	needed := p.rightsToNames(*l)
	r.mu.Unlock()
	switch {
	case len(needed) == 0 && len(l.names) > 0:
		return nil
	case len(needed) == 0 || p.peer != "":
		needed = rights{}
		needed.to("service", "")
	}
	may, err := r.decide(ctx, p, l.anonymous, needed, &l.Filtered)
	if !may || err != nil {
		return err
	}
	again, err := r.readNames(ctx, p, query{level: certain})
	if err != nil {
		return err
	}
	again.Filtered = again.anonymous != l.anonymous
	for name := range l.names {
		if _, there := again.names[name]; !there {
			again.Filtered = true // nobody asked about it; the next one will tell
		}
	}
	*l = again
	return nil
}

// rightsToNames are those that show the services that are missing in l: to read them, and the nodes that they are on. A service
// whose nodes are all hidden is not among the names. The caller holds mu of run.
func (p *part) rightsToNames(l listing) rights {
	needed := rights{}
	need := func(name string) {
		needed.to("service", name)
		nodes := p.nodes.believed // on any of them, as far as we know
		if s := p.services[name]; s != nil && s.known && !s.restored {
			nodes = s.instances.nodes()
		}
		for node := range nodes {
			needed.to("node", node)
		}
	}
	for name := range p.listing.names {
		if _, there := l.names[name]; !there {
			need(name)
		}
	}
	for name, s := range p.services { // those that were listed before, and are held, or of which nothing is known
		if _, there := l.names[name]; !there && !s.delisted && (!s.known || len(s.instances.list) > 0) {
			need(name)
		}
	}
	return needed
}
