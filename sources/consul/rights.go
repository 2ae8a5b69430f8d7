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
	if !answer.Confirming || answer.anonymous == answer.Filtered {
		return nil
	}
	r.mu.Lock()
	missing := answer.instances.without(s.instances)
	listed := s.listed
	var nodes []string // on which what an earlier run published may be
	if answer.lost > 0 && s.part.peer == "" {
		nodes = slices.Sorted(maps.Keys(s.part.nodes.believed))
	}
	r.mu.Unlock()
	if len(missing)+answer.lost == 0 && len(answer.instances.list) > 0 {
		return nil
	}
	var rights []dial.Right
	if s.part.peer == "" {
		rights = append(rights, dial.Right{Resource: "service", Name: s.name})
	} else {
		rights = append(rights, dial.Right{Resource: "service"}) // of a peer: who may read all
	}
	for _, e := range missing {
		if n := (dial.Right{Resource: "node", Name: e.Node.Node}); s.part.peer == "" && !slices.Contains(rights, n) {
			rights = append(rights, n)
		}
	}
	for _, node := range nodes {
		if n := (dial.Right{Resource: "node", Name: node}); !slices.Contains(rights, n) {
			rights = append(rights, n)
		}
	}
	if len(missing)+len(nodes) == 0 && listed {
		rights = append(rights, dial.Right{Resource: "node"}) // its instances may be on any
	}
	may, err := r.decide(ctx, s.part, answer.anonymous, rights, &answer.Filtered)
	if !may || err != nil {
		return err
	}
	done, ok := r.gate.read(ctx, r.gate.ramp)
	if !ok {
		return ctx.Err()
	}
	defer done()
	r.metrics.reads.Add(1)
	again, err := r.catalog.service(ctx, s.part.domain, s.name, query{level: certain})
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
	for _, p := range r.parts {
		if other := p.services[s.name]; p != s.part && other != nil {
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

// decide makes filtered what the rights of whoever asked say of an answer. If they may see everything, that is so now, and the answer
// is of before: so the same has to be asked once more.
func (r *run) decide(ctx context.Context, p *part, anonymous bool, rights []dial.Right, filtered *bool) (may bool, err error) {
	may, err = r.catalog.mayRead(ctx, p.domain, anonymous, rights)
	switch {
	case err != nil && *filtered:
		return false, nil // an old Consul, or a proxy in front of it: then we go by what was said
	case err != nil:
		return false, &rightsError{err}
	}
	*filtered = !may
	return may, nil
}

// rightsError says that it could not be found out who may see what. That is nothing that a service is at fault for.
type rightsError struct{ err error }

// Error implements error.
func (e *rightsError) Error() string { return e.err.Error() }

// Unwrap returns what went wrong.
func (e *rightsError) Unwrap() error { return e.err }

// unmaskNames does the same for the names of p.
func (r *run) unmaskNames(ctx context.Context, p *part, l *listing) error {
	if !l.Confirming || l.anonymous == l.Filtered {
		return nil
	}
	r.mu.Lock()
	rights := p.rightsToNames(*l)
	r.mu.Unlock()
	switch {
	case len(rights) == 0 && len(l.names) > 0:
		return nil
	case len(rights) == 0 || p.peer != "":
		rights = []dial.Right{{Resource: "service"}}
	}
	may, err := r.decide(ctx, p, l.anonymous, rights, &l.Filtered)
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
func (p *part) rightsToNames(l listing) []dial.Right {
	needed := make(map[dial.Right]bool)
	need := func(name string) {
		needed[dial.Right{Resource: "service", Name: name}] = true
		nodes := p.nodes.believed // on any of them, as far as we know
		if s := p.services[name]; s != nil && s.known && !s.restored {
			nodes = s.instances.nodes()
		}
		for node := range nodes {
			needed[dial.Right{Resource: "node", Name: node}] = true
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
	return slices.SortedFunc(maps.Keys(needed), func(a, b dial.Right) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Name, b.Name))
	})
}
