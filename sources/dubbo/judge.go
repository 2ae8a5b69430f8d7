package dubbo

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/sources"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// offers settles the rules of an interface, and returns all that is listed for it.
func (s *state) offers(name string, at time.Time) (all core.Offers[mapping.ID]) {
	s.settleRules(name, at)
	for _, p := range s.providersOf(name) {
		o := core.Offer[mapping.ID]{
			ID: mapping.ID{Service: s.mapper.ServiceOf(p.ID), Protocol: p.Protocol}, Owner: p.String(), State: core.Disabled,
		}
		e, ok, problem := s.mapper.Endpoint(p)
		switch {
		case problem != "":
			all.Warnings = append(all.Warnings, fmt.Sprintf("%s%s: provider %s of %s: %s", s.place, name, p.Host, p.ID, problem))
			all.LeftOut = append(all.LeftOut, leftOut(p, problem))
			if p.Silent { // nobody is there for certain
				o.State = core.Unreadable
			}
		case ok && p.Silent:
			o.Endpoint, o.State, o.Why = e, core.Unreadable, "its check has not heard of it"
		case ok:
			o.Endpoint, o.State = e, core.Listed
		default:
			o.Endpoint, o.Why = e, p.Off()
		}
		all.All = append(all.All, o)
	}
	all.Warnings = append(all.Warnings, s.guesses(name)...)
	if i := s.interfaces[name]; i != nil {
		for _, p := range i.of(registry.Providers) {
			all.Warnings = append(all.Warnings, p.warnings...)
			all.LeftOut = append(all.LeftOut, p.failing...)
			for _, w := range p.warnings {
				all.LeftOut = append(all.LeftOut, sources.LeftOut{What: "a provider", Of: name, Why: strings.TrimPrefix(w, s.place+name+": ")})
			}
		}
	}
	return all
}

func leftOut(p provider.Provider, why string) sources.LeftOut {
	return sources.LeftOut{What: net.JoinHostPort(p.Host, strconv.Itoa(p.Port)), Of: p.String(), Why: why}
}

// settleRules decides what rules of an interface count. One that is not listed after the registry was away is in doubt as providers are:
// without it they would have another weight, or take calls that they must not.
func (s *state) settleRules(name string, at time.Time) {
	i := s.interfaces[name]
	if i == nil {
		return
	}
	unsaid := core.Unlisted
	if i.unreadable(registry.Configurators) {
		unsaid = core.Unreadable
	}
	listing := core.Listing[provider.Configurator]{
		Until: func(k core.Known[provider.Configurator]) time.Time { return s.until(unsaid, k.Since) },
	}
	for _, p := range i.of(registry.Configurators) {
		for _, rule := range p.rules {
			listing.Reports = append(listing.Reports, core.Report[provider.Configurator]{Value: rule, State: core.Listed})
		}
	}
	i.rules, i.held, _ = listing.Settle(i.rules, provider.Configurator.Compare, at)
}

// until is until when something stays that is not listed, by what the registry says of it all the same.
func (s *state) until(unsaid core.State, since time.Time) time.Time {
	switch unsaid {
	case core.Disabled:
		return time.Time{}
	case core.Unreadable:
		return core.Forever
	}
	return s.suspicion.Until(since)
}

// providersOf returns the providers of an interface, of both levels: each once, as the rules make it.
func (s *state) providersOf(name string) []provider.Provider {
	var levels [][]provider.Provider
	var rules []provider.Configurator
	if i := s.interfaces[name]; i != nil {
		for _, p := range i.of(registry.Providers) {
			levels = append(levels, p.providers)
		}
		for _, r := range i.rules {
			rules = append(rules, r.Value)
		}
	}
	// Instances come in no order, and which of two that are equally old counts must not depend on that.
	for _, i := range slices.SortedFunc(maps.Keys(s.served[name]), func(a, b *instance) int {
		return cmp.Or(cmp.Compare(a.Application, b.Application), cmp.Compare(a.id, b.id))
	}) {
		levels = append(levels, slices.DeleteFunc(slices.Clone(i.providers), func(p provider.Provider) bool { return p.Interface != name }))
	}
	return provider.Configure(provider.Merge(levels...), rules)
}

// removed reports whether an interface that had a place for providers has none, and is served by no instance of an application either.
func (s *state) removed(name string) bool {
	i := s.interfaces[name]
	return i != nil && i.removed() && len(s.served[name]) == 0
}

// certain reports whether enough is known of an interface to publish it: all its parts were read, or cannot be, and it is not all that
// there is to know of it. What an earlier run published stays as it is while the part from which it was read cannot be read, and it cannot
// be told what it was.
func (s *state) certain(name string) bool {
	i := s.interfaces[name]
	if i == nil {
		return s.unread.levels == 0 || !s.restored[name]
	}
	known := len(s.served[name]) > 0 || s.has(name)
	for key, p := range i.parts {
		if key.Category != registry.Consumers && !p.settled() {
			return false
		}
		known = known || len(p.providers) > 0
	}
	return !i.unreadable(registry.Providers) || known && !s.restored[name]
}

// forget drops an interface of which nothing is left.
func (s *state) forget(name string) {
	if i := s.interfaces[name]; i != nil && len(i.parts) == 0 && len(i.rules) == 0 && !s.has(name) {
		s.discard(name)
	}
}

// discard drops what is registered for an interface.
func (s *state) discard(name string) {
	if i := s.interfaces[name]; i != nil {
		for _, p := range i.parts {
			s.called.remove(p.spots())
		}
		delete(s.interfaces, name)
	}
}

// revisitHeld has looked at anew what is not listed and stays.
func (s *state) revisitHeld() {
	for name, i := range s.interfaces {
		if i.held > 0 {
			s.dirty[name] = true
		}
	}
	s.Reconsider()
}

// has reports whether anything is believed of an interface.
func (s *state) has(name string) (has bool) {
	s.Hosts(name, func(mapping.ID, core.Name) { has = true })
	return has
}
