package dubbo

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tributary/sources"
	"tributary/sources/dubbo/provider"
	core "tributary/sources/registry"
)

// patience is the time that a start waits for the lookups of instances after the registry was read.
const patience = 5 * time.Second

// gather returns the next batch to publish.
func (r *run) gather(now time.Time) core.Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ready := r.state, r.synced
	batch := core.Batch{Next: time.Hour}
	if !ready {
		batch.Next, ready = r.ready(now)
	}
	if r.started = r.started || ready; r.started {
		batch.Synced = ready && !r.synced && !s.lists[interfaceNames].incomplete && !s.lists[applicationNames].incomplete
		r.synced = r.synced || batch.Synced
		batch.Contents = r.contents(now)
		batch.Next = min(batch.Next, r.expire(now))
	}
	batch.Health = r.health(now)
	if !r.keepsNotes() {
		batch.Note = s.NoteOf(s.suspicion)
	}
	return batch
}

// ready reports whether the first publication can begin, and after which time to check again.
func (r *run) ready(now time.Time) (wait time.Duration, ready bool) {
	if reads := r.state.survey(); !r.connection.Up || !reads.settled || reads.refused {
		r.lookupsSince = time.Time{}
		return time.Hour, false
	}
	if r.lookupsSince.IsZero() {
		r.lookupsSince = now
	}
	wait = patience - now.Sub(r.lookupsSince)
	for _, lookup := range r.state.lookups {
		if wait > 0 && lookup.metadata == nil && lookup.failures == 0 {
			return wait, false
		}
	}
	return time.Hour, true
}

// contents returns the groups that changed. The caller holds mu.
func (r *run) contents(now time.Time) []sources.Content {
	s := r.state
	if unread := s.unreadScopes(); !maps.Equal(unread, s.unread) {
		s.unread = unread
		s.reconsiderHeld()
	}
	for name := range s.changed {
		if s.entry(name).settled() {
			delete(s.changed, name)
			s.Take(name, s.offers(name, now))
			s.Touch(name)
		}
	}
	s.Explained = s.suspicion.End.IsZero()
	contents := s.Contents(now)
	s.forgetInterfaces()
	if s.consumersChanged || len(contents) > 0 {
		s.consumersChanged = false
		s.sidecars.TakeAll(s.consumerOffers())
	}
	contents = append(contents, s.sidecars.Contents(now)...)
	if leftOut := s.leftOutInstances(); !slices.Equal(leftOut, r.leftOut) {
		r.leftOut = leftOut
		contents = append(contents, sources.Content{Group: leftOutGroup, LeftOut: leftOut, Explained: true})
	}
	return contents
}

// leftOutGroup is the group that lists the instances of applications that are not served. Names of interfaces have no
// blanks.
const leftOutGroup = "instances of applications"

// leftOutInstances returns the instances of applications, and the services in their metadata, that are not served.
func (s *state) leftOutInstances() (leftOut []sources.LeftOut) {
	for name, application := range s.applications {
		for _, instance := range application.instances {
			if why := s.whyLeftOut(instance); why != "" {
				leftOut = append(leftOut, sources.LeftOut{What: instance.id, Of: name, Why: why})
			}
		}
	}
	for key, lookup := range s.lookups {
		if lookup.metadata == nil {
			continue
		}
		for _, warning := range lookup.warnings {
			what := "revision " + provider.Shorten(key.revision)
			leftOut = append(leftOut, sources.LeftOut{What: what, Of: key.application, Why: warning})
		}
		for instance := range lookup.instances {
			for _, err := range instance.rejected {
				leftOut = append(leftOut, sources.LeftOut{What: instance.id, Of: key.application, Why: err.Error()})
			}
		}
	}
	slices.SortFunc(leftOut, func(a, b sources.LeftOut) int { return cmp.Compare(a.String(), b.String()) })
	return leftOut
}

// whyLeftOut returns the reason why no service of an instance is served. It is empty if one is served, if the instance
// is switched off, and while its lookup is new.
func (s *state) whyLeftOut(i *instance) string {
	switch {
	case i.Failing != "":
		return i.Failing
	case len(i.providers) > 0 || i.Off:
		return ""
	case i.problem != "":
		return i.problem
	case i.lookup == nil || i.lookup.metadata != nil || s.hasServices(i):
		return ""
	case i.lookup.overLimit():
		return i.lookup.reason()
	case i.lookup.failures >= reportAfter:
		return "metadata cannot be read: " + i.lookup.reason()
	}
	return ""
}

// expire ends the suspicion when its time is over, and returns the time until the next change. The caller holds mu.
func (r *run) expire(now time.Time) time.Duration {
	s := r.state
	if !s.suspicion.End.IsZero() && !now.Before(s.suspicion.End) {
		s.suspicion = s.suspicion.Settle(now)
		s.reconsiderHeld()
	}
	for name := range s.changed {
		if s.entry(name).settled() {
			return time.Millisecond
		}
	}
	return core.Wait(core.Earlier(core.Earlier(s.Next(), s.suspicion.End), s.sidecars.Next()), now)
}
