package dubbo

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"tributary/internal/names"
	"tributary/sources"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// offers updates the rules of an interface, and returns its offers.
func (s *state) offers(name string, now time.Time) (offers core.Offers[mapping.ID]) {
	iface := s.entry(name)
	s.settleRules(iface, now)
	for _, registered := range iface.providers() {
		offer := core.Offer[mapping.ID]{
			ID:    mapping.ID{Service: s.mapper.ServiceOf(registered.ID), Protocol: registered.Protocol},
			Owner: registered.String(), State: core.Disabled,
		}
		endpoint, callable, problem := s.mapper.Endpoint(registered)
		offer.Endpoint = endpoint
		switch {
		case problem != "":
			offers.Warnings = append(offers.Warnings,
				fmt.Sprintf("%s%s: provider %s of %s: %s", s.place, name, registered.Host, registered.ID, problem))
			offers.LeftOut = append(offers.LeftOut, leftOut(registered, problem))
			if registered.Unverified {
				offer.State = core.Unreadable
			}
		case !callable:
			offer.Why = registered.Off()
		case registered.Unverified:
			offer.State, offer.Why = core.Unreadable, "no heartbeat has reached its check"
		default:
			offer.State = core.Listed
		}
		offers.All = append(offers.All, offer)
	}
	for _, part := range iface.partsOf(registry.Providers) {
		offers.LeftOut = append(append(offers.LeftOut, part.failing...), part.invalid...)
		for _, invalid := range part.invalid {
			offers.Warnings = append(offers.Warnings, s.place+name+": "+invalid.Why)
		}
	}
	return offers
}

func leftOut(p provider.Provider, why string) sources.LeftOut {
	return sources.LeftOut{What: net.JoinHostPort(p.Host, strconv.Itoa(p.Port)), Of: p.String(), Why: why}
}

// providers returns the providers of an interface, merged from both levels, with the rules applied.
func (i *interfaceState) providers() []provider.Provider {
	var levels [][]provider.Provider
	for _, part := range i.partsOf(registry.Providers) {
		levels = append(levels, part.providers)
	}
	// Merge takes the first of equally old registrations, so that the order has to be stable.
	for _, server := range slices.SortedFunc(maps.Keys(i.instances), func(a, b *instance) int {
		return cmp.Or(cmp.Compare(a.Application, b.Application), cmp.Compare(a.id, b.id))
	}) {
		levels = append(levels, slices.DeleteFunc(slices.Clone(server.providers), func(p provider.Provider) bool {
			return p.Interface != i.name
		}))
	}
	var rules []provider.Configurator
	for _, rule := range i.rules {
		rules = append(rules, rule.Value)
	}
	return provider.Configure(provider.Merge(levels...), rules)
}

// settleRules updates the rules of an interface. An unlisted rule stays for the hold, as providers do: without it
// providers would have another weight, or take calls that they must not take.
func (s *state) settleRules(iface *interfaceState, now time.Time) {
	unlisted := core.Unlisted
	if iface.unreadable(registry.Configurators) {
		unlisted = core.Unreadable
	}
	var listing core.Listing[provider.Configurator]
	listing.Until = func(rule core.Known[provider.Configurator]) time.Time {
		return s.holdUntil(unlisted, rule.Since, rule.Missing)
	}
	for _, part := range iface.partsOf(registry.Configurators) {
		for _, rule := range part.rules {
			listing.Reports = append(listing.Reports, core.Report[provider.Configurator]{Value: rule, State: core.Listed})
		}
	}
	iface.rules, iface.heldRules, _ = listing.Settle(iface.rules, provider.Configurator.Compare, now)
}

// holdUntil returns the time until which an unlisted item stays.
func (s *state) holdUntil(state core.State, since, missing time.Time) time.Time {
	switch state {
	case core.Disabled:
		return time.Time{}
	case core.Unreadable:
		return core.Forever
	}
	return s.suspicion.Until(since, missing)
}

// suspectMissing starts a suspicion: content from before the connection may be unlisted for a while.
func (s *state) suspectMissing(now time.Time, hold time.Duration) {
	var outage time.Duration
	s.suspicion, outage = s.suspicion.Return(now, hold)
	s.Postpone(outage)
	for _, iface := range s.interfaces {
		core.Postpone(iface.rules, outage)
	}
}

// reconsiderHeld re-examines the unlisted content that stays.
func (s *state) reconsiderHeld() {
	for name, iface := range s.interfaces {
		if iface.heldRules > 0 {
			s.changed[name] = true
		}
	}
	s.Reconsider()
}

// forgetInterfaces drops interfaces without registrations and services.
func (s *state) forgetInterfaces() {
	maps.DeleteFunc(s.interfaces, func(name string, iface *interfaceState) bool {
		if len(iface.parts)+len(iface.rules)+len(iface.instances) > 0 || s.changed[name] {
			return false
		}
		unused := true
		s.Hosts(name, func(mapping.ID, core.Name) { unused = false })
		return unused
	})
}

// scope is a part of one level: the whole level, an interface or application, or the instances at an address.
type scope struct {
	level   provider.Levels
	name    string // of an interface, or of an application as endpoints have it
	address string
	port    uint32 // zero for all ports
}

func instanceScope(application, host string, port int) scope {
	address, err := names.Address(host)
	if err != nil {
		address = host
	}
	return scope{provider.OfApplications, mapping.Application(application), address, uint32(port)} //nolint:gosec // a port
}

// scopes returns the addresses at which an instance may serve.
func (i *instance) scopes() []scope {
	if !i.succeeded {
		host, _, err := provider.SplitAddress(i.id)
		if err != nil {
			host = i.id
		}
		return []scope{instanceScope(i.application, host, 0)}
	}
	scopes := []scope{instanceScope(i.application, i.Host, i.Port)}
	for _, endpoint := range i.Endpoints {
		scopes = append(scopes, instanceScope(i.application, i.Host, endpoint.Port))
	}
	return scopes
}

// unreadScopes returns the scopes that the registry may have more content of, and the state of unlisted endpoints there.
func (s *state) unreadScopes() map[scope]core.State {
	scopes := map[scope]core.State{}
	for _, list := range s.lists {
		if !list.ignored && list.unreadable() {
			scopes[scope{level: list.level}] = core.Unreadable
		}
	}
	for name, iface := range s.interfaces {
		if iface.unreadable(registry.Providers) {
			scopes[scope{level: provider.OfInterfaces, name: name}] = core.Unreadable
		}
	}
	for name, application := range s.applications {
		if application.unreadable() {
			scopes[scope{level: provider.OfApplications, name: mapping.Application(name)}] = core.Unreadable
		}
		for _, instance := range application.instances {
			if instance.succeeded && (instance.lookup == nil || instance.lookup.metadata != nil) {
				continue
			}
			state := core.Unreadable
			if instance.Off {
				state = core.Disabled
			}
			for _, address := range instance.scopes() {
				scopes[address] = max(scopes[address], state)
			}
		}
	}
	return scopes
}

// unlistedState returns the state of an unlisted endpoint of an interface. Content of an earlier run that cannot be
// parsed has no address, and may be in any scope.
func (s *state) unlistedState(name string, endpoint core.Endpoint) core.State {
	if endpoint.Address == "" && len(s.unread) > 0 {
		return core.Unreadable
	}
	state := core.Unlisted
	for _, candidate := range []scope{
		{level: provider.OfInterfaces}, {level: provider.OfInterfaces, name: name},
		{level: provider.OfApplications}, {level: provider.OfApplications, name: endpoint.Instance},
		{provider.OfApplications, endpoint.Instance, endpoint.Address, 0},
		{provider.OfApplications, endpoint.Instance, endpoint.Address, endpoint.Port},
	} {
		if unread := s.unread[candidate]; unread != 0 && provider.Levels(endpoint.Levels)&candidate.level != 0 {
			state = min(state, unread)
		}
	}
	return state
}

// addresses returns the addresses of the providers of interfaces, and of served endpoints.
func (s *state) addresses() map[scope]bool {
	if s.callAddresses == nil {
		s.callAddresses = map[scope]bool{}
		for _, iface := range s.interfaces {
			for _, part := range iface.parts {
				for _, address := range part.addresses {
					s.callAddresses[address] = true
				}
			}
		}
		s.Endpoints(func(_ mapping.ID, served core.Known[core.Endpoint]) {
			e := served.Value
			s.callAddresses[scope{provider.OfApplications, e.Instance, e.Address, e.Port}] = true
		})
	}
	return s.callAddresses
}

// hasServices reports whether the services of an instance are known without its metadata, at either level.
func (s *state) hasServices(i *instance) bool {
	return len(i.providers) > 0 ||
		slices.ContainsFunc(i.scopes(), func(address scope) bool { return s.addresses()[address] })
}
