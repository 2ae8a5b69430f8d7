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
	leaveOut := func(instance, service, why string) {
		offers.LeftOut = append(offers.LeftOut, sources.LeftOut{What: instance, Of: service, Why: why})
	}
	var levels [][]provider.Provider
	for _, part := range iface.partsOf(registry.Providers) {
		var providers []provider.Provider
		for _, registration := range part.registrations {
			listed, ok, err := parseProvider(name, registration)
			switch {
			case err != nil && registration.Failing != "":
				leaveOut("a provider", name, registration.Failing+"; "+err.Error())
			case err != nil:
				leaveOut("a provider", name, err.Error())
				offers.Warnings = append(offers.Warnings, s.place+name+": "+err.Error())
			case ok && registration.Failing != "":
				leaveOut(addressOf(listed), listed.String(), registration.Failing)
			case ok:
				providers = append(providers, listed)
			}
		}
		levels = append(levels, providers)
	}
	// Merge takes the first of equally old registrations, so that the order has to be stable.
	for _, server := range slices.SortedFunc(maps.Keys(iface.instances), func(a, b *instance) int {
		return cmp.Or(cmp.Compare(a.Application, b.Application), cmp.Compare(a.id, b.id))
	}) {
		levels = append(levels, slices.DeleteFunc(slices.Clone(server.providers), func(p provider.Provider) bool {
			return p.Interface != name
		}))
	}
	var rules []provider.Configurator
	for _, rule := range iface.rules {
		rules = append(rules, rule.Value)
	}
	for _, merged := range provider.Configure(provider.Merge(levels...), rules) {
		offer := core.Offer[mapping.ID]{
			ID:    mapping.ID{Service: s.mapper.ServiceOf(merged.ID), Protocol: merged.Protocol},
			Owner: merged.String(), State: core.Listed,
		}
		endpoint, callable, problem := s.mapper.Endpoint(merged)
		offer.Endpoint = endpoint
		switch {
		case problem != "":
			offer.State = core.Disabled
			leaveOut(addressOf(merged), merged.String(), problem)
			offers.Warnings = append(offers.Warnings,
				fmt.Sprintf("%s%s: provider %s of %s: %s", s.place, name, merged.Host, merged.ID, problem))
		case !callable:
			offer.State, offer.Why = core.Disabled, merged.Off()
		case merged.Unverified:
			offer.State, offer.Why = core.Unreadable, "no heartbeat has reached its check"
		}
		offers.All = append(offers.All, offer)
	}
	return offers
}

// parseProvider returns the provider of a registration for an interface. ok is false for other registrations.
func parseProvider(name string, registration registry.Registration) (listed provider.Provider, ok bool, err error) {
	if registration.Err != nil {
		return listed, false, registration.Err
	}
	listed, ok, err = registration.Provider()
	if ok && err == nil && listed.Interface != name { // two groups would publish it
		err = fmt.Errorf("provider %s:%d is of %s", listed.Host, listed.Port, provider.Shorten(listed.Interface))
	}
	listed.Levels, listed.Unverified = provider.OfInterfaces, registration.Unverified
	return listed, ok, err
}

func addressOf(p provider.Provider) string { return net.JoinHostPort(p.Host, strconv.Itoa(p.Port)) }

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
		for _, registration := range part.registrations {
			if rule, ok := registration.Configurator(); ok && registration.Failing == "" {
				listing.Reports = append(listing.Reports, core.Report[provider.Configurator]{Value: rule, State: core.Listed})
			}
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
		s.Endpoints(func(_ mapping.ID, served knownEndpoint) {
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
