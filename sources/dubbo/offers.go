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

// offers updates the rules of an interface, and returns its offers.
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
			if p.Unverified { // nobody may be there
				o.State = core.Unreadable
			}
		case ok && p.Unverified:
			o.Endpoint, o.State, o.Why = e, core.Unreadable, "no heartbeat has reached its check"
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

// settleRules updates the rules of an interface. A rule that is not listed after an outage stays for the hold, as providers do: without it
// they would have another weight, or take calls that they must not.
func (s *state) settleRules(name string, at time.Time) {
	i := s.interfaces[name]
	if i == nil {
		return
	}
	unlisted := core.Unlisted
	if i.unreadable(registry.Configurators) {
		unlisted = core.Unreadable
	}
	listing := core.Listing[provider.Configurator]{
		Until: func(k core.Known[provider.Configurator]) time.Time { return s.keepUntil(unlisted, k.Since, k.Missing) },
	}
	for _, p := range i.of(registry.Configurators) {
		for _, rule := range p.rules {
			listing.Reports = append(listing.Reports, core.Report[provider.Configurator]{Value: rule, State: core.Listed})
		}
	}
	i.rules, i.held, _ = listing.Settle(i.rules, provider.Configurator.Compare, at)
}

// keepUntil returns how long an unlisted item stays.
func (s *state) keepUntil(state core.State, since, missing time.Time) time.Time {
	switch state {
	case core.Disabled:
		return time.Time{}
	case core.Unreadable:
		return core.Forever
	}
	return s.suspicion.Until(since, missing)
}

// providersOf returns the providers of an interface, merged from both levels, with the rules applied.
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
	// Of equally old registrations Merge takes the first: the order must be stable.
	for _, i := range slices.SortedFunc(maps.Keys(s.served[name]), func(a, b *instance) int {
		return cmp.Or(cmp.Compare(a.Application, b.Application), cmp.Compare(a.id, b.id))
	}) {
		levels = append(levels, slices.DeleteFunc(slices.Clone(i.providers), func(p provider.Provider) bool { return p.Interface != name }))
	}
	return provider.Configure(provider.Merge(levels...), rules)
}

// removed reports whether an interface lost its place for providers, and no instance of an application serves it.
func (s *state) removed(name string) bool {
	i := s.interfaces[name]
	return i != nil && i.removed() && len(s.served[name]) == 0
}

// publishable reports whether an interface can be published: all its parts were read, or some cannot be but something of it is known. What
// an earlier run published stays while the part it came from cannot be read.
func (s *state) publishable(name string) bool {
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

// forget drops an interface without parts, rules and services.
func (s *state) forget(name string) {
	if i := s.interfaces[name]; i != nil && len(i.parts) == 0 && len(i.rules) == 0 && !s.has(name) {
		delete(s.interfaces, name)
	}
}

// connected begins a suspicion: what is listed until now and is missing from now on need not have gone.
func (s *state) connected(now time.Time, hold time.Duration) {
	var pause time.Duration
	s.suspicion, pause = s.suspicion.Return(now, hold)
	s.Postpone(pause)
	for _, i := range s.interfaces {
		core.Postpone(i.rules, pause)
	}
}

// revisitHeld re-examines what is unlisted and still kept.
func (s *state) revisitHeld() {
	for name, i := range s.interfaces {
		if i.held > 0 {
			s.dirty[name] = true
		}
	}
	s.Reconsider()
}

// has reports whether an interface has services, or kept ones.
func (s *state) has(name string) (has bool) {
	s.Hosts(name, func(mapping.ID, core.Name) { has = true })
	return has
}
