package dubbo

import (
	"cmp"
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
			g.Health, g.Next, g.Note = r.health(now), wait, r.note()
			return g
		}
		if !r.started {
			r.started = true
			for name := range r.state.restored {
				r.state.dirty[name] = true
			}
		}
		if ok {
			g.Synced = !r.state.partial()
			r.synced = g.Synced
		} else {
			g.Next = wait
		}
	}
	g.Contents = r.contents(now)
	g.Contents = append(g.Contents, r.sidecars(now, len(g.Contents) > 0)...)
	g.Contents = append(g.Contents, r.leftOut()...)
	g.Next = min(g.Next, r.expire(now))
	g.Health, g.Note = r.health(now), r.note()
	return g
}

// note returns what the next run has to know; nil for Consul, whose source keeps its own. The caller holds mu.
func (r *run) note() any {
	if r.place == consulPlace {
		return nil
	}
	return r.state.NoteOf(r.state.suspicion)
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
			if p.trouble != nil && !p.read {
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
	s.Explained = s.suspicion.End.IsZero()
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
		s.suspicion = s.suspicion.Settle(now)
		s.revisitHeld()
	}
	next := core.Earlier(s.Next(), s.suspicion.End)
	for name := range s.dirty {
		if s.publishable(name) {
			return time.Millisecond
		}
	}
	next = core.Earlier(next, s.consuming.next)
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
		until = ", those from before the connection until " + s.suspicion.End.UTC().Format(time.TimeOnly) + " UTC at the latest"
	}
	if endpoints > 0 {
		all = append(all, core.HeldText(endpoints, s.HeldServices())+until)
	}
	if rules > 0 {
		all = append(all, words.Count(rules, "configurator is not listed and stays", "configurators are not listed and stay")+until)
	}
	return all
}

// unlisted returns why no names can be read at all; nil if some can.
func (s *state) unlisted() (err error) {
	for n, l := range s.listed {
		if !s.unwanted[n] && l.trouble == nil {
			return nil
		}
		err = cmp.Or(err, l.trouble)
	}
	return err
}

// problems returns what cannot be read: the first of each kind, with the number of others. The caller holds mu.
func (r *run) problems() (all []string, denied bool) {
	var interfaces, applications []string
	note := func(to *[]string, err error) {
		if err != nil {
			denied = denied || errors.Is(err, registry.ErrDenied)
			*to = append(*to, err.Error())
		}
	}
	for _, l := range r.state.listed {
		note(&all, l.trouble)
	}
	for _, name := range slices.Sorted(maps.Keys(r.state.interfaces)) {
		i := r.state.interfaces[name]
		for _, p := range slices.Concat(i.of(registry.Providers), i.of(registry.Configurators), i.of(registry.Consumers)) {
			note(&interfaces, p.trouble)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.state.applications)) {
		a := r.state.applications[name]
		note(&applications, a.trouble)
		for _, id := range slices.Sorted(maps.Keys(a.instances)) {
			i := a.instances[id]
			if i.problem != "" {
				applications = append(applications, i.problem)
			} else if i.lookup != nil && i.lookup.overLimit != "" {
				applications = append(applications, i.lookup.overLimit)
			}
		}
	}
	return slices.Concat(all, core.First(interfaces, "interfaces"), core.First(applications, "of applications"), r.state.unresolved()), denied
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
	found, fallback := map[string][]string{}, map[string][]string{} // names by source
	for name, a := range r.state.applications {
		for _, i := range a.instances {
			l := i.lookup
			switch {
			case l == nil || !l.tried, l.metadata == nil && !r.state.knows(i):
				continue
			case l.metadata != nil:
				found[l.how] = append(found[l.how], name)
				continue
			}
			source := "their interface registrations or the last known state"
			if len(i.providers) > 0 {
				source = "the interfaces mapped to them, without group and version"
			}
			source += ", because: " + l.reason()
			fallback[source] = append(fallback[source], name+" revision "+provider.Shorten(l.of.revision))
		}
	}
	others := namesBy(fallback)
	if more := len(others) - maxFallbacks; more > 0 {
		others = append(others[:maxFallbacks], fmt.Sprintf("and %d more fallbacks", more))
	}
	return append(namesBy(found), others...)
}

// namesBy lists the first three names of each source, in order.
func namesBy(by map[string][]string) (all []string) {
	for _, source := range slices.Sorted(maps.Keys(by)) {
		names := slices.Compact(slices.Sorted(slices.Values(by[source])))
		text := strings.Join(names[:min(3, len(names))], ", ")
		if len(names) > 3 {
			text += fmt.Sprintf(" and %d more", len(names)-3)
		}
		all = append(all, text+" by "+source)
	}
	return all
}
