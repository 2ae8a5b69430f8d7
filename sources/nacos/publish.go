package nacos

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/sources"
	"tributary/sources/nacos/client"
	"tributary/sources/registry"
)

// gather returns what there is to hand on.
func (r *run) gather(now time.Time) (g registry.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.started {
		if r.down != nil || !r.state.settled() {
			return registry.Batch{Health: r.health(now), Next: time.Hour}
		}
		r.started = true
	}
	if !r.synced && r.state.complete() {
		r.synced, g.Synced = true, true
	}
	g.Contents = r.contents(now)
	g.Next = r.expire(now)
	g.Health = r.health(now)
	return g
}

// contents returns what changed, as the sink takes it. The caller holds mu.
func (r *run) contents(now time.Time) (all []sources.Content) {
	s := r.state
	done := map[key]told{}
	believe := func() {
		for k := range s.dirty {
			if _, again := done[k]; !again && s.certain(k, now) {
				done[k] = s.believe(k, now, r.settings.KeepEmpty)
			}
		}
	}
	believe()
	s.rename()
	believe() // what has another name now
	for _, k := range slices.SortedFunc(maps.Keys(done), key.compare) {
		delete(s.dirty, k)
		all = append(all, r.content(k, done[k]))
		s.forget(k)
	}
	return all
}

func (r *run) content(k key, t told) sources.Content {
	c := sources.Content{Group: k.String(), Warnings: t.warnings, LeftOut: t.left, Explained: t.explained && r.down == nil}
	for _, service := range r.state.entries(k) {
		one, warned, err := r.mapper.Entry(service)
		registry.Add(&c, service.Place, warned, err, one)
	}
	return registry.Tidy(c)
}

// expire has what lasted long enough looked at again, and returns when there is more. The caller holds mu.
func (r *run) expire(now time.Time) time.Duration {
	s := r.state
	over := !s.suspicion.Until.IsZero() && !now.Before(s.suspicion.Until)
	next := time.Time{}
	for k, of := range s.services {
		for _, record := range of.records {
			switch end := record.Empty.Add(r.settings.KeepEmpty); {
			case over && record.Held > 0:
				s.dirty[k] = true
			case record.Empty.IsZero() || record.instances > 0:
			case !now.Before(end):
				s.dirty[k] = true
			default:
				next = registry.Earlier(next, end)
			}
		}
	}
	if over {
		s.suspicion = registry.Suspicion{}
	} else {
		next = registry.Earlier(next, s.suspicion.Until)
	}
	for k := range s.dirty {
		if s.certain(k, now) {
			return time.Millisecond
		}
	}
	return registry.Wait(next, now)
}

// health says how the source is. The caller holds mu.
func (r *run) health(now time.Time) sources.Health {
	s := r.state
	if errors.Is(r.down, errNotYet) {
		return sources.Health{State: sources.Starting, Message: r.down.Error()}
	}
	if r.down != nil {
		return sources.Health{State: registry.StateOf(r.down, client.ErrDenied), Message: r.down.Error()}
	}
	problems, all, first := s.troubles()
	if all {
		return sources.Health{State: registry.StateOf(first, client.ErrDenied), Message: strings.Join(problems, "; ")}
	}
	if held := s.held(); held > 0 {
		text := registry.HeldText(held)
		if now.Before(s.suspicion.Until) {
			text += " until " + s.suspicion.Until.UTC().Format(time.TimeOnly) + " UTC, as Nacos was away"
		}
		problems = append(problems, text)
	}
	switch {
	case len(problems) > 0:
		return sources.Health{State: sources.Degraded, Message: strings.Join(problems, "; ")}
	case !r.started:
		return sources.Health{State: sources.Starting, Message: "reading the services"}
	}
	return sources.Health{State: sources.Healthy, Message: s.nothing(fmt.Sprintf("namespace %s, group %s", r.address.NamespaceName(),
		strings.Join(r.settings.Groups, ", ")))}
}
