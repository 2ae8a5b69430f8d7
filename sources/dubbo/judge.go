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

// record is what is believed of one service, which is one host of the mesh.
type record struct {
	endpoints []known // in order
	// empty has an element for each protocol that the service has, or had: since when it has no provider, or zero if it has one.
	empty map[string]time.Time
	held  int // endpoints that the registry does not list, and that stay for now
}

// known is an endpoint, and when it was first listed; zero if it was before this run.
type known = core.Known[mapping.Endpoint]

// said is what a registry says of a service.
type said struct {
	endpoints []core.Report[mapping.Endpoint]
	protocols []string // of all providers that are listed, also of those that take no calls
}

// settle decides what is believed of a service. A protocol that has no provider is remembered for keep.
func (r record) settle(now said, until func(known) time.Time, at time.Time, keep time.Duration) record {
	after := record{empty: make(map[string]time.Time, len(r.empty))}
	listing := core.Listing[mapping.Endpoint]{Reports: now.endpoints, Until: until}
	after.endpoints, after.held, _ = listing.Settle(r.endpoints, mapping.Endpoint.Compare, at)
	has := map[string]bool{}
	for _, e := range after.endpoints {
		has[e.Value.Protocol] = true
	}
	for _, p := range now.protocols {
		has[p] = true
	}
	for p := range has {
		after.empty[p] = time.Time{}
	}
	for p, since := range r.empty {
		if still, kept := core.Empty(since, has[p], at, keep); kept {
			after.empty[p] = still
		}
	}
	return after
}

// next returns when something of the record changes by itself, given how long what is empty stays; zero if nothing does.
func (r record) next(keep time.Duration) (at time.Time) {
	for _, since := range r.empty {
		if !since.IsZero() {
			at = core.Earlier(at, since.Add(keep))
		}
	}
	return at
}

// service is what the mapping takes.
func (r record) service(s mapping.Service) mapping.Service {
	for p := range r.empty {
		s.Protocols = append(s.Protocols, p)
	}
	slices.Sort(s.Protocols)
	for _, e := range r.endpoints {
		s.Endpoints = append(s.Endpoints, e.Value)
	}
	return s
}

// restored is the record of what an earlier run published.
func restored(all []mapping.Restored) record {
	r := record{empty: map[string]time.Time{}}
	for _, one := range all {
		r.empty[one.Protocol] = time.Time{}
		for _, e := range one.Endpoints {
			r.endpoints = append(r.endpoints, known{Value: e})
		}
	}
	slices.SortFunc(r.endpoints, func(a, b known) int { return a.Value.Compare(b.Value) })
	return r
}

// believe decides what counts of an interface. unsaid judges an endpoint of a service that is not listed.
func (s *state) believe(name string, at time.Time, unsaid func(provider.ID, mapping.Endpoint) core.State,
	keep func(removed bool) time.Duration,
) (t notes) {
	s.settleRules(name, at)
	now := map[provider.ID]*said{}
	var unanswered []provider.Provider
	for _, p := range s.providersOf(name) {
		id := s.mapper.ServiceOf(p.ID)
		if now[id] == nil {
			now[id] = &said{}
		}
		l := now[id]
		if !p.Silent {
			l.protocols = append(l.protocols, p.Protocol)
		}
		e, ok, problem := s.mapper.Endpoint(p)
		switch {
		case problem != "":
			t.warnings = append(t.warnings, fmt.Sprintf("%s%s: provider %s of %s: %s", s.place, name, p.Host, p.ID, problem))
			t.leave(p, problem)
		case ok && p.Silent:
			l.endpoints = append(l.endpoints, core.Report[mapping.Endpoint]{Value: e, State: core.Unreadable})
			unanswered = append(unanswered, p)
		case ok:
			l.endpoints = append(l.endpoints, core.Report[mapping.Endpoint]{Value: e, State: core.Listed})
		default:
			l.endpoints = append(l.endpoints, core.Report[mapping.Endpoint]{Value: e, State: core.Disabled})
			t.leave(p, p.Off())
		}
	}
	t.warnings = append(t.warnings, s.guesses(name)...)
	if i := s.interfaces[name]; i != nil {
		for _, p := range i.of(registry.Providers) {
			t.warnings = append(t.warnings, p.warnings...)
			t.left = append(t.left, p.failing...)
			for _, w := range p.warnings {
				t.left = append(t.left, sources.LeftOut{What: "a provider", Of: name, Why: strings.TrimPrefix(w, s.place+name+": ")})
			}
		}
	}
	before, after := s.records[name], map[provider.ID]record{}
	for id := range before {
		if now[id] == nil {
			now[id] = &said{}
		}
	}
	t.explained = s.suspicion == core.Suspicion{}
	for id, l := range now {
		t.explained = t.explained && before[id].held == 0
		until := func(k known) time.Time { return s.until(unsaid(id, k.Value), k.Since) }
		if r := before[id].settle(*l, until, at, keep(s.removed(name))); len(r.empty) > 0 {
			after[id] = r
		}
	}
	s.remember(name, after)
	for _, p := range unanswered {
		e, _, _ := s.mapper.Endpoint(p)
		if !slices.ContainsFunc(after[s.mapper.ServiceOf(p.ID)].endpoints, func(k known) bool { return k.Value.Compare(e) == 0 }) {
			t.leave(p, "its check has not heard of it")
		}
	}
	return t
}

// notes are what there is to say of an interface to people.
type notes struct {
	warnings  []string
	left      []sources.LeftOut
	explained bool // see sources.Content
}

func (t *notes) leave(p provider.Provider, why string) { t.left = append(t.left, leftOut(p, why)) }

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
	known := len(s.served[name]) > 0 || len(s.records[name]) > 0
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
	if i := s.interfaces[name]; i != nil && len(i.parts) == 0 && len(i.rules) == 0 && len(s.records[name]) == 0 {
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

// reconsider has looked at anew what is not listed and stays.
func (s *state) reconsider() {
	for name, i := range s.interfaces {
		if i.held > 0 {
			s.dirty[name] = true
		}
	}
	for name, services := range s.records {
		for _, r := range services {
			if r.held > 0 {
				s.dirty[name] = true
			}
		}
	}
}
