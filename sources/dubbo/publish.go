package dubbo

import (
	"errors"
	"maps"
	"time"

	"tributary/sources"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/presence"
	"tributary/sources/registry"
)

// lookupWait is the time that a start waits for the lookups of instances after the registry was read.
const lookupWait = 5 * time.Second

// gather returns the next batch to publish.
func (r *run) gather(now time.Time) registry.Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch, ready := registry.Batch{Next: time.Hour}, r.synced
	if !ready {
		batch.Next, ready = r.ready(now)
	}
	if r.started = r.started || ready; r.started {
		complete := !r.lists[interfaceNames].incomplete && !r.lists[applicationNames].incomplete
		batch.Synced = ready && complete && !r.synced
		r.synced = r.synced || batch.Synced
		batch.Contents = r.contents(now)
		due := presence.Earlier(r.rulesDue(), presence.Earlier(r.Next(), r.sidecars.Next()))
		batch.Next = min(batch.Next, registry.Wait(due, now))
	}
	batch.Health, batch.Unconfirmed = r.health(now), r.unconfirmed()
	if !r.keepsNotes() {
		batch.Note = r.Note()
	}
	return batch
}

// ready reports whether the whole registry can be published, and after which time to check again.
func (r *run) ready(now time.Time) (remaining time.Duration, ready bool) {
	if outcome := r.survey(); !r.connection.Up || !outcome.settled || outcome.refused() {
		r.lookupsSince = time.Time{}
		return time.Hour, false
	}
	if r.lookupsSince.IsZero() {
		r.lookupsSince = now
	}
	remaining = lookupWait - now.Sub(r.lookupsSince)
	for _, lookup := range r.lookups {
		if remaining > 0 && lookup.metadata == nil && lookup.failures == 0 {
			return remaining, false
		}
	}
	return time.Hour, true
}

// contents returns the groups that changed. The caller holds mu.
func (r *run) contents(now time.Time) []sources.Content {
	expired := r.Suspicion != r.Suspicion.Expire(now)
	if unread := r.unreadScopes(); expired || !maps.Equal(unread, r.unread) {
		r.unread = unread
		r.reconsiderHeld()
	}
	for interfaceName, dubboInterface := range r.interfaces {
		if due := dubboInterface.rulesDue; dubboInterface.settled() && !due.IsZero() && !now.Before(due) {
			r.changed[interfaceName] = true
		}
	}
	for interfaceName := range r.changed {
		if r.entry(interfaceName).settled() {
			delete(r.changed, interfaceName)
			r.Take(interfaceName, r.offers(interfaceName, now))
			r.Touch(interfaceName)
		}
	}
	leftOut := r.leftOutInstances()
	if len(leftOut)+r.leftOutCount > 0 {
		r.Take(leftOutGroup, registry.Offers[mapping.ID]{LeftOut: leftOut})
	}
	r.leftOutCount, r.RemovalsObserved = len(leftOut), r.Suspicion.End.IsZero()
	contents := r.Contents(now)
	r.callAddresses = nil
	r.forgetInterfaces()
	if r.consumersChanged || len(contents) > 0 {
		r.consumersChanged = false
		r.sidecars.TakeAll(r.consumerOffers())
	}
	return append(contents, r.sidecars.Contents(now)...)
}

// leftOutGroup is the group that lists the instances of applications that are not served. Names of interfaces have no
// blanks.
const leftOutGroup = "instances of applications"

// leftOutInstances returns the instances of applications, and the services in their metadata, that are not served.
func (s *state) leftOutInstances() (leftOut []sources.LeftOut) {
	add := func(item, application, reason string) {
		if reason != "" {
			leftOut = append(leftOut, sources.LeftOut{What: item, Of: application, Why: reason})
		}
	}
	for applicationName, application := range s.applications {
		for id, instance := range application.instances {
			add(id, applicationName, s.whyLeftOut(instance))
		}
	}
	for revision, lookup := range s.lookups {
		for _, warning := range lookup.warnings {
			add("revision "+provider.Shorten(revision.number), revision.application, warning)
		}
		for instance := range lookup.instances {
			for _, err := range instance.rejected {
				add(instance.id, revision.application, err.Error())
			}
		}
	}
	return leftOut
}

// whyLeftOut returns the reason why no service of an instance is served. It is empty if one is served, if the instance
// is switched off, and while its lookup is new.
func (s *state) whyLeftOut(instance *instance) string {
	switch {
	case instance.Failing != "":
		return instance.Failing
	case len(instance.providers) > 0 || instance.Off:
		return ""
	case instance.failure != nil:
		return errors.Unwrap(instance.failure).Error()
	case instance.lookup == nil || instance.lookup.metadata != nil || s.hasServices(instance):
		return ""
	case instance.lookup.overLimit():
		return instance.lookup.reason()
	case instance.lookup.failures >= reportAfter:
		return "metadata cannot be read: " + instance.lookup.reason()
	}
	return ""
}

// rulesDue returns when the first hold of a rule ends.
func (s *state) rulesDue() (due time.Time) {
	for _, dubboInterface := range s.interfaces {
		if dubboInterface.settled() {
			due = presence.Earlier(due, dubboInterface.rulesDue)
		}
	}
	return due
}
