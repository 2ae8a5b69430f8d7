package consul

import (
	"context"
	"maps"
	"slices"

	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
	"tributary/sources/consul/mapping"
)

// Consul flags an answer that hides data from a token, but does not name the data: the flag does not explain
// missing instances. It does not flag answers to anonymous requests. A lost token (an emptied file, an unset variable)
// would look like a loss of all services. So when such an answer lacks something, the source asks Consul for the rights
// to read it.

// rights is a set of rights.
type rights map[dial.Right]bool

// add adds the right to read a resource of each name; an empty name stands for any.
func (set rights) add(resource string, names ...string) {
	for _, name := range names {
		set[dial.Right{Resource: resource, Name: name}] = true
	}
}

// checkRights asks Consul whether ACLs hide the instances that an answer lacks, and sets Filtered. If the requester has
// the rights, it reads again: they may have been granted after the answer.
func (r *run) checkRights(ctx context.Context, service *service, answer *serviceAnswer) error {
	r.countLost(service, answer)
	needed := func() rights { return service.rightsToMissing(*answer) }
	allowed, err := r.requestRights(ctx, service.scope, &answer.Answer, needed)
	if !allowed || err != nil {
		return err
	}
	second, err := r.readOnce(ctx, service.scope, service.name, confirmed)
	if err != nil {
		return err
	}
	// The rights that were asked for do not cover instances that went between the two reads.
	second.Filtered = second.Anonymous != answer.Anonymous || len(second.instances.missing(answer.instances)) > 0
	r.countLost(service, &second)
	*answer = second
	return nil
}

// rightsToMissing returns the rights that show the missing instances; none if none is missing.
func (s *service) rightsToMissing(answer serviceAnswer) rights {
	missing := answer.instances.missing(s.instances)
	if len(missing)+answer.lost == 0 && len(answer.instances.list) > 0 {
		return nil
	}
	needed := rights{}
	if s.scope.peer != "" {
		needed.add("service", "") // any service
	} else {
		needed.add("service", s.name)
		if answer.lost > 0 { // instances of an earlier run may be on any node
			needed.add("node", slices.Collect(maps.Keys(s.scope.nodes.accepted))...)
		}
		for _, entry := range missing {
			needed.add("node", entry.Node.Node)
		}
	}
	if len(missing) == 0 && len(needed) == 1 && s.nameState == nameListed {
		needed.add("node", "") // its instances may be on any node
	}
	return needed
}

// countLost counts the endpoints of an earlier run that neither the answer nor another scope has.
func (r *run) countLost(service *service, answer *serviceAnswer) {
	r.mu.Lock()
	restored := service.restored
	scopes := []mapping.Service{{Entries: answer.instances.list}}
	for sibling := range r.servicesNamed(service.name) {
		if sibling != service {
			scopes = append(scopes, mapping.Service{Entries: sibling.instances.list})
		}
	}
	r.mu.Unlock()
	if restored {
		answer.lost = r.publisher.Lost(service.name, scopes)
	}
}

// requestRights sets Filtered of a confirmed answer to whether the requester lacks the rights to see the missing data.
// It reports whether the requester has them all, and the answer has to be read again. No rights are needed if no data
// is missing.
func (r *run) requestRights(
	ctx context.Context, scope *catalogScope, answer *judge.Answer, needed func() rights,
) (allowed bool, err error) {
	if !answer.Confirmed || answer.Anonymous == answer.Filtered {
		return false, nil
	}
	r.mu.Lock()
	list := slices.Collect(maps.Keys(needed()))
	r.mu.Unlock()
	if len(list) == 0 {
		return false, nil
	}
	allowed, err = r.catalog.mayRead(ctx, scope.scope, answer.Anonymous, list)
	switch {
	case err != nil && answer.Filtered:
		return false, nil // an old Consul, or a proxy: the flag of the answer counts
	case requestFault(dial.Classify(err)): // of this request, and not of a service
		return false, &dial.Error{Failure: dial.Failure{Kind: dial.Unreachable}, Err: err}
	case err != nil:
		return false, err
	}
	answer.Filtered = !allowed
	return allowed, nil
}

// checkRightsToNames is checkRights for the names of services.
func (r *run) checkRightsToNames(ctx context.Context, scope *catalogScope, listing *listing) error {
	needed := func() rights { return scope.rightsToNames(*listing) }
	allowed, err := r.requestRights(ctx, scope, &listing.Answer, needed)
	if !allowed || err != nil {
		return err
	}
	second, err := r.readNames(ctx, scope, query{level: confirmed})
	if err != nil {
		return err
	}
	second.Filtered = second.Anonymous != listing.Anonymous
	for name := range listing.names {
		if _, listed := second.names[name]; !listed {
			second.Filtered = true // the rights do not cover it
		}
	}
	*listing = second
	return nil
}

// rightsToNames returns the rights that show the services that the listing lacks: Consul lists a service if the
// token may read it and one of its nodes.
func (s *catalogScope) rightsToNames(listing listing) rights {
	needed := rights{}
	add := func(name string) {
		if _, listed := listing.names[name]; listed {
			return
		}
		needed.add("service", name)
		nodes := s.nodes.accepted // its instances may be on any of them
		if service := s.services[name]; service != nil && service.readState == readApplied && !service.restored {
			nodes = service.instances.nodes()
		}
		for node := range nodes {
			needed.add("node", node)
		}
	}
	for name := range s.listing.names {
		add(name)
	}
	for name, service := range s.services {
		unreadOrHeld := service.readState != readApplied || len(service.instances.list) > 0
		if service.nameState != nameDelisted && unreadOrHeld {
			add(name)
		}
	}
	if len(listing.names) == 0 && len(needed) == 0 || s.peer != "" && len(needed) > 0 {
		return rights{{Resource: "service"}: true} // any service
	}
	return needed
}
