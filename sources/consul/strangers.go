package consul

import (
	"context"
	"slices"
	"strings"

	"tributary/sources/consul/dial"
)

// Consul says when it leaves something out that a token may not see. To those who send no token it does not say so. A
// token that was lost, in an emptied file or a variable that is not set after a restart, would look like services that have all
// gone. So where something is missing in such an answer, we ask whether strangers may see it.

// unmask finds out whether an answer about s is filtered, if Consul does not tell.
func (r *run) unmask(ctx context.Context, s *service, answer *reading) error {
	if !answer.anonymous || !answer.Confirming || answer.Filtered {
		return nil
	}
	r.mu.Lock()
	missing := answer.instances.without(s.instances)
	listed := s.listed
	r.mu.Unlock()
	if len(missing) == 0 && len(answer.instances.list) > 0 {
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
	if len(missing) == 0 && listed {
		rights = append(rights, dial.Right{Resource: "node"}) // its instances may be on any
	}
	may, err := r.catalog.strangersMay(ctx, s.part.domain, rights)
	answer.Filtered = err == nil && !may
	return err
}

// unmaskNames does the same for the names of p.
func (r *run) unmaskNames(ctx context.Context, p *part, l *listing) error {
	if !l.anonymous || !l.Confirming || l.Filtered {
		return nil
	}
	var rights []dial.Right
	r.mu.Lock()
	for name := range p.listing.names {
		if _, there := l.names[name]; !there {
			rights = append(rights, dial.Right{Resource: "service", Name: name})
		}
	}
	for name, s := range p.services { // those that were listed before, and are held
		if _, there := l.names[name]; !there && s.known && !s.delisted && len(s.instances.list) > 0 {
			if _, there := p.listing.names[name]; !there {
				rights = append(rights, dial.Right{Resource: "service", Name: name})
			}
		}
	}
	r.mu.Unlock()
	switch {
	case len(rights) == 0 && len(l.names) > 0:
		return nil
	case len(rights) == 0 || p.peer != "":
		rights = []dial.Right{{Resource: "service"}}
	}
	slices.SortFunc(rights, func(a, b dial.Right) int { return strings.Compare(a.Name, b.Name) })
	may, err := r.catalog.strangersMay(ctx, p.domain, rights)
	l.Filtered = err == nil && !may
	return err
}
