package dubbo

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/sources"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// patience is how long a start waits for the lookups of instances, after all else was read.
const patience = 5 * time.Second

// gather returns the next batch to publish.
func (r *run) gather(now time.Time) (g core.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.Next = time.Hour
	if !r.synced {
		wait, ok := r.ready(now)
		if !ok && !r.started {
			g.Health, g.Next = r.health(now), wait
			return g
		}
		if !r.started {
			r.started = true
			for name := range r.state.restored {
				r.state.dirty[name] = true
			}
		}
		if g.Next = min(g.Next, wait); ok {
			g.Next = time.Hour
			g.Synced = !r.state.partial()
			r.synced = g.Synced
		}
	}
	g.Contents = r.contents(now)
	g.Contents = append(g.Contents, r.sidecars(now, len(g.Contents) > 0)...)
	g.Contents = append(g.Contents, r.leftOut()...)
	g.Next = min(g.Next, r.expire(now))
	g.Health = r.health(now)
	return g
}

// ready reports whether the first publication can begin, or when to look again.
func (r *run) ready(now time.Time) (wait time.Duration, ok bool) {
	s := r.state
	if r.down != "" || !s.settled() || r.refused() {
		r.asked = time.Time{}
		return time.Hour, false
	}
	if r.asked.IsZero() {
		r.asked = now
	}
	left := patience - now.Sub(r.asked)
	if s.undecided() && left > 0 {
		return left, false
	}
	return 0, true
}

// refused reports whether there is something to read, and every read of it is denied.
func (r *run) refused() bool {
	all, denied := 0, 0
	for _, l := range r.state.listed {
		if l.trouble != nil && !l.read {
			all++
			denied++
		}
	}
	for _, i := range r.state.interfaces {
		for _, p := range i.of(registry.Providers) {
			all++
			if p.trouble != nil && p.content == unknown {
				denied++
			}
		}
	}
	for _, a := range r.state.applications {
		all++
		if a.trouble != nil {
			denied++
		}
	}
	return all > 0 && denied == all
}

// contents returns the groups that changed. The caller holds mu.
func (r *run) contents(now time.Time) []sources.Content {
	s := r.state
	if u := s.unreadNow(); !u.equal(s.unread) {
		s.unread = u
		s.revisitHeld()
	}
	var done []string // interfaces
	for name := range s.dirty {
		if s.publishable(name) {
			delete(s.dirty, name)
			delete(s.restored, name)
			done = append(done, name)
			s.Take(name, s.offers(name, now))
			s.Touch(name)
		}
	}
	s.Explained = s.suspicion == core.Suspicion{}
	all := s.Contents(now)
	for _, name := range done {
		s.forget(name)
	}
	return all
}

// expire ends the suspicion when its time is over, and returns when something changes next. The caller holds mu.
func (r *run) expire(now time.Time) time.Duration {
	s := r.state
	if !s.suspicion.End.IsZero() && !now.Before(s.suspicion.End) {
		s.suspicion = core.Suspicion{}
		s.revisitHeld()
	}
	next := core.Earlier(s.Next(), s.suspicion.End)
	for name := range s.dirty {
		if s.publishable(name) {
			return time.Millisecond
		}
	}
	next = core.Earlier(next, s.consuming.next(r.settings.SidecarGrace))
	return core.Wait(next, now)
}

// health returns the status of the source. The caller holds mu.
func (r *run) health(now time.Time) sources.Health {
	s := r.state
	switch {
	case r.denied:
		return sources.Health{State: sources.Denied, Message: r.down}
	case r.down == notYet:
		return sources.Health{State: sources.Starting, Message: r.down}
	case r.down != "":
		return sources.Health{State: sources.Unreachable, Message: r.down}
	}
	if err := s.unlisted(); err != nil {
		return sources.Health{State: core.StateOf(err, registry.ErrDenied), Message: err.Error()}
	}
	problems, denied := r.problems()
	if r.trouble != "" {
		problems = append([]string{r.trouble}, problems...)
	}
	problems = append(problems, s.held(now)...)
	found := r.metadataSources()
	switch {
	case r.refused() && denied:
		return sources.Health{State: sources.Denied, Message: strings.Join(problems, "; ")}
	case len(problems) > 0:
		return sources.Health{State: sources.Degraded, Message: strings.Join(append(problems, found...), "; ")}
	case !r.started:
		return sources.Health{State: sources.Starting, Message: "reading the registry"}
	}
	return sources.Health{State: sources.Healthy, Message: strings.Join(append(s.whyEmpty(), found...), "; ")}
}

// held counts, for the status, the endpoints and rules that are not listed and stay.
func (s *state) held(now time.Time) (all []string) {
	rules := 0
	_, endpoints := s.Services()
	for _, i := range s.interfaces {
		rules += i.held
	}
	until := ""
	if now.Before(s.suspicion.End) {
		until = ", those from before the connection until " + s.suspicion.End.UTC().Format(time.TimeOnly) + " UTC"
	}
	if endpoints > 0 {
		all = append(all, core.HeldText(endpoints)+until)
	}
	if rules > 0 {
		all = append(all, words.Count(rules, "configurator is not listed and stays", "configurators are not listed and stay")+until)
	}
	return all
}

// unlisted returns why no names can be read at all; nil if some can.
func (s *state) unlisted() (err error) {
	for _, l := range s.listed {
		if !l.skipped && l.trouble == nil {
			return nil
		}
		if err == nil {
			err = l.trouble
		}
	}
	return err
}

// problems returns what cannot be read: the first of each kind, with the number of others. The caller holds mu.
func (r *run) problems() (all []string, denied bool) {
	add := func(count int, what, first string) {
		switch {
		case count == 1:
			all = append(all, first)
		case count > 1:
			all = append(all, fmt.Sprintf("%s, and %d more %s", first, count-1, what))
		}
	}
	for _, l := range r.state.listed {
		if l.trouble != nil {
			denied = denied || errors.Is(l.trouble, registry.ErrDenied)
			add(1, "", l.trouble.Error())
		}
	}
	first, count := "", 0
	note := func(text string) {
		if count++; count == 1 {
			first = text
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.state.interfaces)) {
		i := r.state.interfaces[name]
		for _, p := range slices.Concat(i.of(registry.Providers), i.of(registry.Configurators), i.of(registry.Consumers)) {
			if p.trouble != nil {
				denied = denied || errors.Is(p.trouble, registry.ErrDenied)
				note(p.trouble.Error())
			}
		}
	}
	add(count, "interfaces", first)
	first, count = "", 0
	for _, name := range slices.Sorted(maps.Keys(r.state.applications)) {
		a := r.state.applications[name]
		if a.trouble != nil {
			denied = denied || errors.Is(a.trouble, registry.ErrDenied)
			note(a.trouble.Error())
		}
		for _, id := range slices.Sorted(maps.Keys(a.instances)) {
			i := a.instances[id]
			if i.problem != "" {
				note(i.problem)
			} else if i.lookup != nil && i.lookup.overLimit != "" {
				note(i.lookup.overLimit)
			}
		}
	}
	add(count, "of applications", first)
	all = append(all, r.state.unresolved()...)
	return all, denied
}

// unresolved names the first application with an instance whose services are unknown at both levels, why, and how many others there are.
func (s *state) unresolved() []string {
	var names []string
	why := ""
	for _, name := range slices.Sorted(maps.Keys(s.applications)) {
		for _, i := range s.applications[name].list() {
			if l := i.lookup; l != nil && l.failed >= reportAfter && l.metadata == nil && l.overLimit == "" && !i.Off && !s.knows(i) {
				if names = append(names, provider.Shorten(name)); len(names) == 1 {
					why = l.reason()
				}
				break
			}
		}
	}
	switch len(names) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("application %s: nothing is served, its metadata cannot be read: %s", names[0], why)}
	}
	return []string{fmt.Sprintf("application %s and %d more: nothing is served, their metadata cannot be read: %s", names[0], len(names)-1,
		why)}
}

// maxFallbacks is how many fallbacks the status names, each with its reason.
const maxFallbacks = 5

// metadataSources says where the services of applications were found, and why a revision falls back on less. The caller holds mu.
func (r *run) metadataSources() []string {
	found, fallback := map[string]map[string]bool{}, map[string]map[string]bool{}
	note := func(by map[string]map[string]bool, source, application string) {
		if by[source] == nil {
			by[source] = map[string]bool{}
		}
		by[source][application] = true
	}
	for name, a := range r.state.applications {
		for _, i := range a.instances {
			l := i.lookup
			switch {
			case l == nil || !l.tried, l.metadata == nil && !r.state.knows(i):
				continue
			case l.metadata != nil:
				note(found, l.how, name)
				continue
			}
			source := "their interface registrations or the last known state"
			if len(i.providers) > 0 {
				source = "the interfaces mapped to them, without group and version"
			}
			note(fallback, source+", because: "+l.reason(), name+" revision "+provider.Shorten(l.of.revision))
		}
	}
	all := applicationsBy(found)
	others := applicationsBy(fallback)
	if more := len(others) - maxFallbacks; more > 0 {
		others = append(others[:maxFallbacks], fmt.Sprintf("and %d more fallbacks", more))
	}
	return append(all, others...)
}

// applicationsBy names the first three applications of each source, in order.
func applicationsBy(by map[string]map[string]bool) (all []string) {
	for _, source := range slices.Sorted(maps.Keys(by)) {
		names := slices.Sorted(maps.Keys(by[source]))
		text := strings.Join(names[:min(3, len(names))], ", ")
		if len(names) > 3 {
			text += fmt.Sprintf(" and %d more", len(names)-3)
		}
		all = append(all, text+" by "+source)
	}
	return all
}
