package dubbo

import (
	"cmp"
	"errors"
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
	batch := core.Batch{Next: time.Hour}
	if !r.started {
		batch.Next, r.started = r.ready(now)
	}
	if r.started {
		batch.Synced = !r.synced && !r.lists[interfaceNames].incomplete && !r.lists[applicationNames].incomplete
		r.synced = r.synced || batch.Synced
		batch.Contents = r.contents(now)
		batch.Next = r.expire(now)
	}
	batch.Health = r.health(now)
	if !r.keepsNotes() {
		batch.Note = r.NoteOf(r.suspicion)
	}
	return batch
}

// ready reports whether the first publication can begin, and after which time to check again.
func (r *run) ready(now time.Time) (wait time.Duration, ready bool) {
	if reads := r.survey(); !r.connection.Up || !reads.settled || reads.refused() {
		r.lookupsSince = time.Time{}
		return time.Hour, false
	}
	if r.lookupsSince.IsZero() {
		r.lookupsSince = now
	}
	wait = patience - now.Sub(r.lookupsSince)
	for _, lookup := range r.lookups {
		if wait > 0 && lookup.metadata == nil && lookup.failures == 0 {
			return wait, false
		}
	}
	return 0, true
}

// contents returns the groups that changed. The caller holds mu.
func (r *run) contents(now time.Time) []sources.Content {
	if unread := r.unreadScopes(); !maps.Equal(unread, r.unread) {
		r.unread = unread
		r.reconsiderHeld()
	}
	for name := range r.changed {
		if r.entry(name).settled() {
			delete(r.changed, name)
			r.Take(name, r.offers(name, now))
			r.Touch(name)
		}
	}
	r.Explained = r.suspicion.End.IsZero()
	contents := r.Contents(now)
	r.forgetInterfaces()
	if r.consumersChanged || len(contents) > 0 {
		r.consumersChanged = false
		r.sidecars.TakeAll(r.consumerOffers())
	}
	contents = append(contents, r.sidecars.Contents(now)...)
	if leftOut := r.leftOutInstances(); !slices.Equal(leftOut, r.leftOut) {
		r.leftOut = leftOut
		contents = append(contents, sources.Content{Group: leftOutGroup, LeftOut: leftOut, Explained: true})
	}
	return contents
}

// expire ends the suspicion when its time is over, and returns the time until the next change. The caller holds mu.
func (r *run) expire(now time.Time) time.Duration {
	if !r.suspicion.End.IsZero() && !now.Before(r.suspicion.End) {
		r.suspicion = r.suspicion.Settle(now)
		r.reconsiderHeld()
		return time.Millisecond
	}
	return core.Wait(core.Earlier(core.Earlier(r.Next(), r.suspicion.End), r.sidecars.Next()), now)
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
	case i.failure != nil:
		return errors.Unwrap(i.failure).Error()
	case i.lookup == nil || i.lookup.metadata != nil || s.hasServices(i):
		return ""
	case i.lookup.overLimit():
		return i.lookup.reason()
	case i.lookup.failures >= reportAfter:
		return "metadata cannot be read: " + i.lookup.reason()
	}
	return ""
}
