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
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/presence"
	"tributary/sources/registry"
)

// offers updates the rules of an interface, and returns its offers.
func (s *state) offers(interfaceName string, now time.Time) (offers registry.Offers[mapping.ID]) {
	dubboInterface := s.entry(interfaceName)
	s.settleRules(dubboInterface, now)
	leaveOut := func(instance, service, why string) {
		offers.LeftOut = append(offers.LeftOut, sources.LeftOut{What: instance, Of: service, Why: why})
	}
	var providers []provider.Provider
	for _, part := range dubboInterface.partsOf(backend.Providers) {
		for _, registration := range part.registrations {
			listed, isProvider, err := parseProvider(interfaceName, registration)
			switch {
			case err != nil && registration.Failing != "":
				leaveOut("a provider", interfaceName, registration.Failing+"; "+err.Error())
			case err != nil:
				leaveOut("a provider", interfaceName, err.Error())
				offers.Warnings = append(offers.Warnings, s.place+interfaceName+": "+err.Error())
			case isProvider && registration.Failing != "":
				leaveOut(addressOf(listed), listed.String(), registration.Failing)
			case isProvider:
				providers = append(providers, listed)
			}
		}
	}
	// Merge takes the first of equally old registrations, so that the order has to be stable.
	for _, instance := range slices.SortedFunc(maps.Keys(dubboInterface.instances), func(a, b *instance) int {
		return cmp.Or(cmp.Compare(a.Application, b.Application), cmp.Compare(a.id, b.id))
	}) {
		providers = append(providers, instance.providers[interfaceName]...)
	}
	var rules []provider.Configurator
	for _, configurator := range dubboInterface.rules {
		rules = append(rules, configurator.Value)
	}
	for _, merged := range provider.Configure(provider.Merge(providers), rules) {
		offer := registry.Offer[mapping.ID]{
			ID:    mapping.ID{Service: s.mapper.ServiceOf(merged.ID), Protocol: merged.Protocol},
			Owner: merged.String(), State: presence.Listed,
		}
		endpoint, callable, problem := s.mapper.Endpoint(merged)
		offer.Endpoint = endpoint
		switch {
		case problem != "":
			offer.State = presence.Disabled
			leaveOut(addressOf(merged), merged.String(), problem)
			offers.Warnings = append(offers.Warnings,
				fmt.Sprintf("%s%s: provider %s of %s: %s", s.place, interfaceName, merged.Host, merged.ID, problem))
		case !callable:
			offer.State, offer.Why = presence.Disabled, merged.Off()
		case merged.Unverified:
			offer.State, offer.Why = presence.Unreadable, "no heartbeat has reached its check"
		}
		offers.All = append(offers.All, offer)
	}
	return offers
}

// parseProvider returns the provider of a registration for an interface. isProvider is false for
// other registrations.
func parseProvider(interfaceName string, registration backend.Registration) (
	listed provider.Provider, isProvider bool, err error,
) {
	if registration.Err != nil {
		return listed, false, registration.Err
	}
	listed, isProvider, err = registration.Provider()
	if isProvider && err == nil && listed.Interface != interfaceName { // two groups would publish it
		err = fmt.Errorf("provider %s:%d is of %s", listed.Host, listed.Port, provider.Shorten(listed.Interface))
	}
	listed.Levels, listed.Unverified = provider.OfInterfaces, registration.Unverified
	return listed, isProvider, err
}

func addressOf(listed provider.Provider) string {
	return net.JoinHostPort(listed.Host, strconv.Itoa(listed.Port))
}

// settleRules updates the rules of an interface. An unlisted rule stays for the hold, as providers do: without it
// providers would have another weight, or take calls that they must not take.
func (s *state) settleRules(dubboInterface *interfaceState, now time.Time) {
	unlisted := presence.Unlisted
	if dubboInterface.unreadable(backend.Configurators) {
		unlisted = presence.Unreadable
	}
	var reports []presence.Report[provider.Configurator]
	for _, part := range dubboInterface.partsOf(backend.Configurators) {
		for _, registration := range part.registrations {
			if rule, ok := registration.Configurator(); ok && registration.Failing == "" {
				reports = append(reports, presence.Report[provider.Configurator]{Value: rule, State: presence.Listed})
			}
		}
	}
	dubboInterface.rules, dubboInterface.heldRules, dubboInterface.rulesDue = presence.Fold(dubboInterface.rules, reports,
		provider.Configurator.Compare, func(rule knownRule) time.Time {
			return s.holdUntil(unlisted, rule.FirstListed, rule.Missing)
		}, now)
}

// holdUntil returns the time until which an unlisted item stays.
func (s *state) holdUntil(state presence.State, firstListed, missing time.Time) time.Time {
	switch state {
	case presence.Disabled:
		return time.Time{}
	case presence.Unreadable:
		return presence.Forever
	}
	return s.Suspicion.Deadline(firstListed, missing)
}

// suspectMissing starts a suspicion: content from before the connection may be unlisted for a while.
func (s *state) suspectMissing(now time.Time, holdDuration time.Duration) {
	outage := s.Return(now, holdDuration)
	for _, dubboInterface := range s.interfaces {
		presence.Postpone(dubboInterface.rules, outage)
	}
}

// reconsiderHeld re-examines the unlisted content that stays.
func (s *state) reconsiderHeld() {
	for interfaceName, dubboInterface := range s.interfaces {
		if dubboInterface.heldRules > 0 {
			s.changed[interfaceName] = true
		}
	}
	s.Reconsider()
}

// forgetInterfaces drops interfaces without registrations and services.
func (s *state) forgetInterfaces() {
	maps.DeleteFunc(s.interfaces, func(interfaceName string, dubboInterface *interfaceState) bool {
		if len(dubboInterface.parts)+len(dubboInterface.rules)+len(dubboInterface.instances) > 0 || s.changed[interfaceName] {
			return false
		}
		unused := true
		s.Hosts(interfaceName, func(mapping.ID, registry.Name) { unused = false })
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

func instanceScope(application, hostName string, port int) scope {
	address, err := names.Address(hostName)
	if err != nil {
		address = hostName
	}
	return scope{provider.OfApplications, mapping.Application(application), address, uint32(port)} //nolint:gosec // a port
}

// scopes returns the addresses at which an instance may serve.
func (i *instance) scopes() []scope {
	if !i.succeeded {
		hostName, _, err := provider.SplitAddress(i.id)
		if err != nil {
			hostName = i.id
		}
		return []scope{instanceScope(i.application, hostName, 0)}
	}
	scopes := []scope{instanceScope(i.application, i.Host, i.Port)}
	for _, endpoint := range i.Endpoints {
		scopes = append(scopes, instanceScope(i.application, i.Host, endpoint.Port))
	}
	return scopes
}

// unreadScopes returns the scopes that were not read completely, and the state of unlisted endpoints there.
func (s *state) unreadScopes() map[scope]presence.State {
	scopes := map[scope]presence.State{}
	for _, nameList := range s.lists {
		if !nameList.ignored && nameList.unreadable() {
			scopes[scope{level: nameList.level}] = presence.Unreadable
		}
	}
	for interfaceName, dubboInterface := range s.interfaces {
		if dubboInterface.unreadable(backend.Providers) {
			scopes[scope{level: provider.OfInterfaces, name: interfaceName}] = presence.Unreadable
		}
	}
	for applicationName, application := range s.applications {
		if application.unreadable() {
			scopes[scope{level: provider.OfApplications, name: mapping.Application(applicationName)}] = presence.Unreadable
		}
		for _, instance := range application.instances {
			if instance.succeeded && (instance.lookup == nil || instance.lookup.metadata != nil) {
				continue
			}
			endpointState := presence.Unreadable
			if instance.Off {
				endpointState = presence.Disabled
			}
			for _, address := range instance.scopes() {
				scopes[address] = max(scopes[address], endpointState)
			}
		}
	}
	return scopes
}

// unlistedState returns the state of an unlisted endpoint of an interface. Content of an earlier run that cannot be
// parsed has no address, and may be in any scope.
func (s *state) unlistedState(interfaceName string, endpoint registry.Endpoint) presence.State {
	if endpoint.Address == "" && len(s.unread) > 0 {
		return presence.Unreadable
	}
	endpointState := presence.Unlisted
	for _, candidate := range []scope{
		{level: provider.OfInterfaces},
		{level: provider.OfInterfaces, name: interfaceName},
		{level: provider.OfApplications},
		{level: provider.OfApplications, name: endpoint.Instance},
		{provider.OfApplications, endpoint.Instance, endpoint.Address, 0},
		{provider.OfApplications, endpoint.Instance, endpoint.Address, endpoint.Port},
	} {
		if unreadState := s.unread[candidate]; unreadState != 0 && provider.Levels(endpoint.Levels)&candidate.level != 0 {
			endpointState = min(endpointState, unreadState)
		}
	}
	return endpointState
}

// addresses returns the addresses of the providers of interfaces, and of served endpoints.
func (s *state) addresses() map[scope]bool {
	if s.callAddresses == nil {
		s.callAddresses = map[scope]bool{}
		for _, dubboInterface := range s.interfaces {
			for _, part := range dubboInterface.parts {
				for _, address := range part.addresses {
					s.callAddresses[address] = true
				}
			}
		}
		s.Endpoints(func(_ mapping.ID, served registry.Known) {
			endpoint := served.Value
			s.callAddresses[scope{provider.OfApplications, endpoint.Instance, endpoint.Address, endpoint.Port}] = true
		})
	}
	return s.callAddresses
}

// hasServices reports whether the services of an instance are known without its metadata, at either level.
func (s *state) hasServices(instance *instance) bool {
	return len(instance.providers) > 0 ||
		slices.ContainsFunc(instance.scopes(), func(address scope) bool { return s.addresses()[address] })
}
