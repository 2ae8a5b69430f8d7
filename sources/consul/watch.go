package consul

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/time/rate"

	"tributary/internal/worker"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
	"tributary/sources/presence"
)

// watcher reads one service again and again.
type watcher struct {
	run     *run
	service *service
	pace    pacer
	retry   backoff.BackOff
	index   uint64
	confirm bool          // the next read is a confirmed one
	last    judge.Verdict // on the last answer

	unpaced    bool      // a blocking query was answered since the last pause of pace
	polled     time.Time // when a service without a slot was last read
	changeSeen int       // change count at the last read from the leader; 0 after a read from another server
}

func (r *run) watch(ctx context.Context, service *service) {
	watcher := watcher{run: r, service: service, pace: pacer{last: paceLast}, retry: newBackOff(firstRetry, lastRetry)}
	r.mu.Lock()
	restored := service.restored
	r.mu.Unlock()
	// Without endpoints of the earlier run, an answer cannot show a loss.
	watcher.confirm = restored && r.publisher.Lost(service.name, nil) == 0
	defer watcher.leave()
	for ctx.Err() == nil {
		watcher.step(ctx)
	}
}

// step makes one read and applies it.
func (w *watcher) step(ctx context.Context) {
	query, limiter := w.choose()
	answer, err := w.read(ctx, query, limiter)
	if err == nil {
		err = w.examine(ctx, &answer)
	}
	if err != nil {
		w.fail(ctx, err)
		return
	}
	verdict := w.apply(answer)
	wasDoubtful := w.last == judge.Doubtful
	w.last = verdict
	w.unpaced = w.unpaced || query.index > 0
	w.confirm = true
	switch verdict {
	case judge.Doubtful:
		w.run.metrics.confirmations.Add(1)
		return
	case judge.Denied, judge.Partial:
		w.run.metrics.denied.Add(1)
		fallthrough
	case judge.Foreign, judge.Unconfirmed, judge.Absent:
		w.backOff(ctx)
		return
	case judge.Unchanged:
		if wasDoubtful { // two answers contradict each other: an immediate retry could loop
			w.backOff(ctx)
		}
	}
	w.confirm = false
	if !wasDoubtful {
		w.retry.Reset()
	}
	w.index = dial.NextIndex(query.index, answer.Index)
	if w.unpaced {
		w.unpaced = false
		w.service.reread.Pause(ctx, w.pace.next(time.Now()))
	}
}

// examine completes an answer by the requests that it makes necessary.
func (w *watcher) examine(ctx context.Context, answer *serviceAnswer) error {
	w.run.mu.Lock()
	err := w.run.checkInstanceLimit(w.service, *answer)
	w.run.mu.Unlock()
	if err == nil {
		err = w.run.checkRights(ctx, w.service, answer)
	}
	if err == nil {
		err = w.run.identifyCluster(ctx, w.service, answer)
	}
	return err
}

// choose returns the next query, and the limiter for it; none for a blocking query.
func (w *watcher) choose() (query, *rate.Limiter) {
	usual := w.run.usualLevel(w.service.scope)
	switch {
	case w.service.reread.Take() || w.confirm && w.last != judge.Absent:
		return query{level: confirmed}, w.run.gate.readLimiter
	case w.confirm:
		return query{level: confirmed}, w.run.gate.slowLimiter
	case w.index == 0:
		return query{level: usual}, w.run.gate.readLimiter
	case w.service.hasSlot:
		return query{index: w.index, level: usual}, nil
	case w.run.gate.takeSlot():
		w.run.metrics.watches.Add(1)
		w.run.mu.Lock()
		w.service.hasSlot = true
		w.run.mu.Unlock()
		return query{index: w.index, level: usual}, nil
	}
	if w.allQueriesRunning() {
		usual = max(usual, leaders)
	}
	return query{level: usual}, w.run.gate.pollLimiter
}

// readOnce reads a service without blocking.
func (r *run) readOnce(
	ctx context.Context, scope *catalogScope, name string, consistency level,
) (serviceAnswer, error) {
	finish, ok := r.gate.begin(ctx, r.gate.readLimiter)
	if !ok {
		return serviceAnswer{}, context.Canceled
	}
	defer finish()
	r.metrics.reads.Add(1)
	return r.catalog.service(ctx, scope.scope, name, query{level: consistency})
}

func (w *watcher) read(ctx context.Context, query query, limiter *rate.Limiter) (serviceAnswer, error) {
	if limiter == w.run.gate.pollLimiter {
		if !w.waitForChange(ctx) {
			return serviceAnswer{}, context.Canceled
		}
		interval := pollInterval
		if w.allQueriesRunning() {
			interval = queriedPollInterval
		}
		w.service.reread.Pause(ctx, interval-time.Since(w.polled))
		w.polled = time.Now()
	}
	ctx, end := w.service.reread.Begin(ctx)
	defer end()
	ok, finish := false, func() {}
	if limiter == nil {
		ok = w.run.gate.wait(ctx)
	} else {
		finish, ok = w.run.gate.begin(ctx, limiter)
	}
	if !ok {
		return serviceAnswer{}, context.Canceled
	}
	defer finish()
	w.run.metrics.reads.Add(1)
	w.changeSeen = 0
	if query.level >= leaders { // another server may lack the change, and no later signal would follow
		w.run.mu.Lock()
		w.changeSeen = w.service.scope.changes.count
		w.run.mu.Unlock()
	}
	ctx, endQuery := w.service.scope.begin(ctx, query)
	answer, err := w.run.catalog.service(ctx, w.service.scope.scope, w.service.name, query)
	return answer, endQuery(err)
}

// apply applies an answer to the state.
func (w *watcher) apply(answer serviceAnswer) judge.Verdict {
	service := w.service
	scope := service.scope
	w.run.mu.Lock()
	defer w.run.mu.Unlock()
	trouble := service.trouble
	readState := service.readState
	wasQuarantined := service.quarantine != nil
	wasRestored := service.restored
	wasEmpty := !service.emptySince.IsZero()
	suspicion := scope.suspicion
	verdict := service.applyAnswer(answer, time.Now())
	changed := verdict == judge.Changed || verdict == judge.Emptied && !wasEmpty
	confirmed := wasRestored && !service.restored
	readable := wasQuarantined && service.quarantine == nil
	if changed || verdict == judge.Partial || confirmed || readable {
		w.run.changedServices[service.name] = true
	}
	w.run.recordChanged = w.run.recordChanged || scope.suspicion != suspicion
	if service.resyncing && verdict != judge.Doubtful && verdict != judge.Unconfirmed {
		service.resyncing = false
		if changed {
			w.run.metrics.healed.Add(1)
		}
	}
	if (verdict == judge.Denied || verdict == judge.Partial) && trouble == nil {
		scope.reread.Raise() // other services may be hidden, too
	}
	if w.run.changedServices[service.name] || trouble != service.trouble || readState != service.readState ||
		w.run.recordChanged {
		w.run.wakeup.Notify()
	}
	return verdict
}

// fail stores a failed read, and waits before the next one.
func (w *watcher) fail(ctx context.Context, err error) {
	trouble := w.run.explain(err)
	if trouble == nil {
		return // interrupted
	}
	w.run.mu.Lock()
	if w.service.applyFailure(trouble) {
		w.run.changedServices[w.service.name] = true
	}
	w.run.mu.Unlock()
	w.run.wakeup.Notify()
	w.index = 0
	w.confirm = false
	w.backOff(ctx)
}

// backOff waits before the next attempt. While the names cannot be read either, it waits for those.
func (w *watcher) backOff(ctx context.Context) {
	delay := w.retry.NextBackOff()
	w.run.mu.Lock()
	recovered := w.service.scope.recovered
	w.run.mu.Unlock()
	if recovered == nil {
		w.service.reread.Pause(ctx, delay)
		return
	}
	select {
	case <-ctx.Done():
	case <-recovered:
	}
}

func (w *watcher) leave() {
	if w.service.hasSlot {
		w.run.gate.releaseSlot()
		w.run.metrics.watches.Add(-1)
	}
}

// resync makes the watchers read everything again from time to time, one after another.
func (r *run) resync(ctx context.Context, scope *catalogScope) {
	for {
		// Tributaries that started together do not stay together.
		spread := r.settings.Resync / 10
		delay := r.settings.Resync - spread + rand.N(2*spread+1) //nolint:gosec // no secret
		if worker.Wait(ctx, nil, delay) != nil {
			return
		}
		r.mu.Lock()
		var services []*service
		if scope.recovered == nil && scope.namesRead {
			scope.reread.Raise()
			services = slices.AppendSeq(services, maps.Values(scope.services))
		}
		r.mu.Unlock()
		for _, service := range services {
			if r.gate.slowLimiter.Wait(ctx) != nil {
				return
			}
			r.mu.Lock()
			if service.readState == readApplied && service.trouble == nil && service.heldInstances == 0 &&
				service.nameState != nameDelisted {
				service.resyncing = true
				service.reread.Raise()
			}
			r.mu.Unlock()
		}
	}
}

// watchNames watches the names of the services of a scope.
func (r *run) watchNames(ctx context.Context, scope *catalogScope) {
	pace, retry := pacer{last: paceNames}, newBackOff(firstRetry, lastNamesRetry)
	var index uint64
	confirm := false // the next read is a confirmed one
	for ctx.Err() == nil {
		next := query{index: index, level: r.usualLevel(scope)}
		if scope.reread.Take() || confirm {
			next = query{level: confirmed}
		}
		listing, err := r.readNames(ctx, scope, next)
		if err == nil {
			err = r.examineNames(ctx, scope, &listing)
		}
		verdict := judge.Foreign
		if err == nil {
			verdict = r.applyListing(ctx, scope, listing)
		} else if t := r.explain(err); t != nil {
			r.mu.Lock()
			scope.fail(t, time.Now())
			r.mu.Unlock()
			r.wakeup.Notify()
		} else {
			continue // interrupted
		}
		confirm = true
		switch verdict {
		case judge.Doubtful:
		case judge.Denied, judge.Foreign:
			index = 0
			scope.reread.Pause(ctx, retry.NextBackOff())
		default:
			confirm = false
			retry.Reset()
			index = dial.NextIndex(next.index, listing.Index)
			scope.reread.Pause(ctx, pace.next(time.Now()))
		}
	}
}

func (r *run) readNames(ctx context.Context, scope *catalogScope, query query) (listing, error) {
	if !r.gate.wait(ctx) {
		return listing{}, ctx.Err()
	}
	confirmedRead := 0
	if query.level == confirmed { // requests for another one do not interrupt it: else it might never end
		r.mu.Lock()
		confirmedRead = scope.confirmedReads.next()
		scope.confirmedReads.started = confirmedRead
		r.mu.Unlock()
	} else {
		var end func()
		ctx, end = scope.reread.Begin(ctx)
		defer end()
	}
	r.metrics.names.Add(1)
	ctx, endQuery := scope.begin(ctx, query)
	names, err := r.catalog.services(ctx, scope.scope, query)
	names.confirmedRead = confirmedRead
	return names, endQuery(err)
}

// begin ties a blocking query to the lifeline of the scope. Other queries have a short time limit.
func (s *catalogScope) begin(ctx context.Context, query query) (context.Context, func(error) error) {
	if query.index == 0 {
		return ctx, func(err error) error { return err }
	}
	return s.lifeline.Begin(ctx)
}

// examineNames completes a listing by the requests that it makes necessary.
func (r *run) examineNames(ctx context.Context, scope *catalogScope, names *listing) error {
	err := r.checkServiceLimit(*names)
	for _, examine := range []func(context.Context, *catalogScope, *listing) error{
		r.checkRightsToNames, r.identifyClusterOfNames, r.readWitnesses,
	} {
		if err == nil {
			err = examine(ctx, scope, names)
		}
	}
	return err
}

// applyListing applies a listing to the state, and starts watchers of new services.
func (r *run) applyListing(ctx context.Context, scope *catalogScope, listing listing) judge.Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	wereRead := scope.namesRead
	before := scope.listing
	verdict, added, reread := scope.applyNames(listing, time.Now())
	if verdict == judge.Doubtful {
		r.metrics.confirmations.Add(1)
		return verdict
	}
	if verdict == judge.Denied {
		r.metrics.denied.Add(1)
	}
	if scope.listing.Index != before.Index {
		scope.changes.signal() // a registration of some service
	}
	first := !wereRead && scope.namesRead
	if first {
		added = append(added, r.adopt(scope, time.Now())...)
	}
	if first || !slices.Equal(scope.listing.unselected, before.unselected) {
		r.unselectedChanged = true
	}
	for _, service := range reread {
		service.reread.Raise()
	}
	for _, name := range added {
		r.start(ctx, scope, name)
	}
	if verdict == judge.Changed || verdict == judge.Partial || first { // first names may equal those of the record
		r.namesChanged = true
		r.recordChanged = true
	}
	for name, service := range scope.services {
		if service.nameState == nameDelisted {
			r.changedServices[name] = true
		}
	}
	r.wakeup.Notify()
	return verdict
}

// adopt returns the services of an earlier run that the first names lack. Each gets a watcher: a first listing alone
// withdraws none.
func (st *state) adopt(scope *catalogScope, now time.Time) (names []string) {
	// With a record, applyNames detects a loss of data.
	if scope.recorded == nil && len(scope.listing.names) == 0 && len(st.restored) > 1 && !scope.suspicion.Holds(now) {
		scope.suspicion = presence.Suspect(now, scope.resetHold, fmt.Sprintf(
			"Consul has no services, where an earlier run found %d: it seems to have lost its data", len(st.restored)))
	}
	for name := range st.restored {
		if _, listed := scope.listing.names[name]; !listed && scope.services[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// start starts the watcher of a service. The caller holds the mutex.
func (r *run) start(ctx context.Context, scope *catalogScope, name string) {
	ctx, cancel := context.WithCancel(ctx)
	restored := r.restored[name] && scope.mayRestore(name)
	service := &service{name: name, scope: scope, stop: cancel, nameState: nameListed, restored: restored}
	if _, listed := scope.listing.names[name]; !listed {
		service.nameState = nameAdopted
		service.graceEnded = !scope.mayRestore(name)
	}
	scope.services[name] = service
	r.workers.Go(func() {
		defer cancel()
		r.watch(ctx, service)
	})
}
