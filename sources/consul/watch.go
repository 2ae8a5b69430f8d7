package consul

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/time/rate"

	"tributary/sources"
)

// watch follows one service; sure says that its first read has to be a certain one.
func (r *run) watch(ctx context.Context, s *service, sure bool) {
	w := watcher{run: r, service: s, pace: pacer{last: paceLast}, retry: newBackOff(firstRetry, lastRetry), sure: sure}
	defer w.leave()
	for ctx.Err() == nil {
		w.step(ctx)
	}
}

// watcher is the loop that follows one service.
type watcher struct {
	*run
	service *service
	pace    pacer
	retry   backoff.BackOff
	index   uint64
	sure    bool      // the next read has to be a certain one
	doubted bool      // the last read was in doubt
	patient bool      // the last read found that there is nothing, which the names will contradict if need be
	woken   bool      // a query that waited was answered, and what follows from it is not done yet
	queued  bool      // it counts among those that have none
	yield   bool      // it left its place for others
	polled  time.Time // when it last read without a place
	seen    int       // what had moved when the leader was last read; 0 if another server was read since
}

// step makes one read and draws the consequences.
func (w *watcher) step(ctx context.Context) {
	q, of := w.choose()
	started := time.Now()
	answer, err := w.read(ctx, q, of)
	for _, examine := range []func(context.Context, *service, *reading) error{w.roomFor, w.unmask, w.vouchFor} {
		if err == nil {
			err = examine(ctx, w.service, &answer)
		}
	}
	if err != nil {
		w.failed(ctx, err)
		return
	}
	m, doubted := w.took(answer), w.doubted
	w.woken = w.woken || q.index > 0
	w.sure, w.doubted, w.patient = true, m == doubtful, m == absent
	switch m {
	case doubtful:
		w.metrics.confirmations.Add(1)
		return
	case denied, partial:
		w.metrics.denied.Add(1)
		fallthrough
	case foreign, unvouched, absent:
		w.wait(ctx, w.retry.NextBackOff()) // of the last two until the names were read, or list it
		return
	case unchanged:
		if doubted { // two answers that contradict each other; to ask again at once could go on forever
			w.wait(ctx, w.retry.NextBackOff())
		}
	}
	w.sure = false
	if !doubted {
		w.retry.Reset()
	}
	w.index = next(q, w.index, answer.Index)
	if !w.woken {
		return
	}
	w.woken = false
	if m == unchanged && q.index > 0 && w.gate.scarce() && !w.covered() && time.Since(started) > w.settings.Wait/2 {
		w.leave() // nothing happened for as long as it waited: let others wait
		w.yield = true
	}
	w.pause(ctx, &w.service.again, w.pace.next(time.Now()))
}

// choose decides how to ask next, and whose turn it has to wait for; none if the query blocks.
func (w *watcher) choose() (query, *rate.Limiter) {
	usual := w.usualLevel(w.service.part)
	switch {
	case w.service.again.take() || w.sure && !w.patient:
		return query{level: certain}, w.gate.ramp
	case w.sure:
		return query{level: certain}, w.gate.slow
	case w.index == 0:
		return query{level: usual}, w.gate.ramp
	case w.service.placed:
		return query{index: w.index, level: usual}, nil
	case !w.yield && w.gate.enter():
		w.queue(false)
		w.place(true)
		return query{index: w.index, level: usual}, nil
	}
	w.yield = false
	w.queue(true)
	if w.covered() {
		usual = max(usual, leaders)
	}
	return query{level: usual}, w.gate.turns
}

// readNow reads a service once, in its turn.
func (r *run) readNow(ctx context.Context, p *part, name string, of *rate.Limiter, sure level) (reading, error) {
	done, ok := r.gate.read(ctx, of)
	if !ok {
		return reading{}, context.Canceled
	}
	defer done()
	r.metrics.reads.Add(1)
	return r.catalog.service(ctx, p.domain, name, query{level: sure})
}

func (w *watcher) read(ctx context.Context, q query, of *rate.Limiter) (reading, error) {
	if of == w.gate.turns {
		if !w.idle(ctx) {
			return reading{}, context.Canceled
		}
		least := minTurn
		if w.covered() {
			least = minTurnNoticed
		}
		w.pause(ctx, &w.service.again, least-time.Since(w.polled))
		w.polled = time.Now()
	}
	ctx, end := w.service.again.begin(ctx)
	defer end()
	if of == nil {
		if !w.gate.calm(ctx) {
			return reading{}, context.Canceled
		}
	} else {
		done, ok := w.gate.read(ctx, of)
		if !ok {
			return reading{}, context.Canceled
		}
		defer done()
	}
	w.metrics.reads.Add(1)
	w.mu.Lock()
	w.seen = 0
	if q.level >= leaders { // other servers may not have heard yet of what has moved, and nobody would tell when they have
		w.seen = w.service.part.note.moved
	}
	w.mu.Unlock()
	return w.catalog.service(ctx, w.service.part.domain, w.service.name, q)
}

// took applies an answer.
func (w *watcher) took(answer reading) meaning {
	s := w.service
	w.mu.Lock()
	defer w.mu.Unlock()
	before, settled, refusal, restored, suspicion := s.trouble, s.settled, s.refusal, s.restored, s.part.suspicion
	m := s.take(answer, time.Now())
	if m == changed || m == gone || m == partial || restored && !s.restored || refusal != nil && s.refusal == nil {
		w.dirty[s.name] = true
	}
	w.unkept = w.unkept || s.part.suspicion != suspicion
	if restored && !w.unsettled(s.name) {
		delete(w.before, s.name)
	}
	if m != doubtful && m != unvouched && s.healing {
		s.healing = false
		if m == changed || m == gone {
			w.metrics.healed.Add(1)
		}
	}
	if (m == denied || m == partial) && before == nil {
		s.part.again.raise() // it may be about more than this service
	}
	if w.dirty[s.name] || before != s.trouble || settled != s.settled || w.unkept {
		w.wakeup.Notify()
	}
	return m
}

// failed notes why the service could not be read, and waits before the next attempt.
func (w *watcher) failed(ctx context.Context, err error) {
	t := w.explain(err)
	if t == nil {
		return // somebody wants us to look again, or to end
	}
	s := w.service
	w.mu.Lock()
	if t.state == sources.Denied && s.part.down == nil && s.trouble == nil {
		s.part.again.raise() // the token has gone: that is about all services
	}
	s.answers++
	if !s.delisted { // else it has gone, whatever is the matter with it
		s.trouble = t
		if s.refuse(t) {
			w.dirty[s.name] = true
		}
	}
	if s.adopted && s.asked == 0 { // the names tell whether it is there at all
		s.asked = s.part.begun + 1
		s.part.ask()
	}
	w.mu.Unlock()
	w.wakeup.Notify()
	w.index, w.sure = 0, false
	w.wait(ctx, w.retry.NextBackOff())
}

// wait waits before the next attempt. While not even the names can be read, it is until they can.
func (w *watcher) wait(ctx context.Context, d time.Duration) {
	w.mu.Lock()
	down := w.service.part.down
	w.mu.Unlock()
	if down == nil {
		w.pause(ctx, &w.service.again, d)
		return
	}
	select {
	case <-ctx.Done():
	case <-down:
	}
}

func (w *watcher) leave() {
	w.queue(false)
	if w.service.placed {
		w.place(false)
		w.gate.leave()
	}
}

// place notes whether the service has a place.
func (w *watcher) place(has bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.service.placed = has
	w.metrics.watches.Add(step(has))
}

func step(up bool) int64 {
	if up {
		return 1
	}
	return -1
}

// queue notes whether the service counts among those that have none.
func (w *watcher) queue(in bool) {
	if w.queued != in {
		w.queued = in
		w.gate.waiting.Add(step(in))
	}
}

// compare reads everything once more from time to time, plainly, and has the loops look again at what is different from
// what they believe.
func (r *run) compare(ctx context.Context, p *part) {
	for {
		spread := r.settings.Resync / 10                              // so that instances of tributary that started together do not stay together
		if !sleep(ctx, r.settings.Resync-spread+rand.N(2*spread+1)) { //nolint:gosec // no secret
			return
		}
		r.mu.Lock()
		skip := p.down != nil || !p.known
		var names []string
		for name := range p.services {
			names = append(names, name)
		}
		r.mu.Unlock()
		if skip {
			continue
		}
		slices.Sort(names)
		r.compareNames(ctx, p)
		for _, name := range names {
			r.compareService(ctx, p, name)
		}
	}
}

func (r *run) compareNames(ctx context.Context, p *part) {
	done, ok := r.gate.read(ctx, r.gate.slow)
	if !ok {
		return
	}
	defer done()
	r.metrics.names.Add(1)
	l, err := r.catalog.services(ctx, p.domain, query{level: leaders})
	if err != nil {
		return // the loop of the names meets the same, and tells
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m, _ := meaningOfNames(l.compare(p.listing, p.known, false), l); m != unchanged && l.Index >= p.listing.Index {
		p.again.raise()
	}
}

func (r *run) compareService(ctx context.Context, p *part, name string) {
	r.mu.Lock()
	s := p.services[name]
	if s == nil || s.trouble != nil || s.held > 0 || !s.known || s.delisted {
		r.mu.Unlock()
		return // there is nothing to compare with
	}
	answers := s.answers
	r.mu.Unlock()
	answer, err := r.readNow(ctx, p, name, r.gate.slow, leaders)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.answers == answers && answer.Index >= s.index && answer.instances.sum != s.instances.sum {
		s.healing = true
		s.again.raise() // it asks again itself, so that there is one way for changes to come in
	}
}
