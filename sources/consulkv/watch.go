package consulkv

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/internal/worker"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
	"tributary/sources/registry"
)

// listing is everything under the prefix at one moment.
type listing struct {
	judge.Answer
	read      time.Time   // when
	pairs     api.KVPairs // in order of keys
	anonymous bool        // no token was sent
	// reset says that the indexes of before mean nothing: Consul was restored or wiped, or has forgotten deletions.
	reset bool
	// held are the keys that Consul does not have, and that stay because of the suspicion.
	held      map[string]bool
	suspicion judge.Suspicion
}

// follower is told what following a prefix brings.
type follower struct {
	took   func(listing) // the state of the prefix, first as it is and then each time it changes
	failed func(error)   // every failure
	felt   func(pulse)   // how Consul is, again and again, from a goroutine of its own
}

// follow tells f until ctx ends, and returns ctx's error.
func (p *place) follow(ctx context.Context, m *memory, f follower) error {
	feeling, ctx := worker.New(ctx)
	defer feeling.Stop()
	var w waiting
	feeling.Go(func() {
		for pause(ctx, p.pulseEvery) == nil {
			if now, err := p.pulse(ctx); err == nil { // else reading meets the same, and tells
				w.felt(now)
				f.felt(now)
			}
		}
	})
	err := p.read(ctx, m, &w, f)
	feeling.Stop()
	return cmp.Or(feeling.Wait(), err)
}

func (p *place) read(ctx context.Context, m *memory, w *waiting, f follower) error {
	retry := p.newBackOff()
	var index uint64 // to ask with
	outage := false
	for {
		asking, end := w.begin(ctx, index)
		l, c, missing, err := p.believed(asking, m, index, outage)
		again := end()
		wait := p.gap
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case again && err != nil:
			index = 0
		case err != nil:
			f.failed(err)
			outage = true
			index = 0 // so that it is known at once when it is over, and not only when something changes
			wait = max(retry.NextBackOff(), dial.Classify(err).RetryAfter)
		default:
			retry.Reset()
			outage = false
			m.take(&l, c, missing)
			f.took(l)
			index = dial.NextIndex(0, l.Index)
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// believed waits until the prefix has changed since index, or for some minutes, and returns what is there, when that is
// certain, how it differs from what was believed before, and the keys that it lacks.
func (p *place) believed(ctx context.Context, m *memory, index uint64, outage bool) (l listing, c judge.Compared, missing []string,
	err error,
) {
	look := func(read listing, failed error) error {
		if l, err = read, failed; err == nil {
			c, missing = m.compare(l, outage)
		}
		return err
	}
	wait := m.wait(p.wait, time.Now())
	err = look(p.list(ctx, wait+wait/16+requestTimeout, &api.QueryOptions{WaitIndex: index, WaitTime: wait}))
	if err == nil && judge.Judge(c, l.Answer) == judge.Doubt {
		// Before anything is withdrawn, a plain question must have the same answer: a token that was deleted while the query
		// waited, or a server that lags behind, is found out by it.
		err = look(p.all(ctx))
	}
	if err = cmp.Or(err, p.refusal(c, l)); err != nil || c.Missing == 0 && len(l.pairs) > 0 {
		return l, c, missing, err
	}
	// That we may read what is missing is so from now on, and the list is of before: what is believed is one of after.
	asked, anonymous := missing, l.anonymous
	if err = p.mayRead(ctx, anonymous, asked); err == nil {
		err = look(p.all(ctx))
	}
	if err = cmp.Or(err, p.refusal(c, l)); err != nil {
		return l, c, nil, err
	}
	more := slices.ContainsFunc(missing, func(key string) bool {
		_, was := slices.BinarySearch(asked, key)
		return !was
	})
	if more || l.anonymous != anonymous { // of these the rights are not known; this could go on, but not for long
		err = p.mayRead(ctx, l.anonymous, missing)
	}
	return l, c, missing, err
}

// refusal is the error of a list that proves nothing.
func (p *place) refusal(c judge.Compared, l listing) error {
	switch judge.Judge(c, l.Answer) {
	case judge.Foreign:
		return dial.ErrForeign
	case judge.Partial, judge.Denied:
		return p.filtered(partly)
	}
	return nil
}

// mayRead makes sure that what is missing is not only hidden from who asked. To those who have no token Consul does not say that
// it hides something, and before 1.11 to nobody. So it is asked for their rights.
func (p *place) mayRead(ctx context.Context, anonymous bool, missing []string) error {
	ctx, cancel := dial.Within(ctx, requestTimeout)
	defer cancel()
	missing = append([]string{p.prefix}, missing...)
	rights := make([]dial.Right, len(missing))
	for i, key := range missing {
		rights[i] = dial.Right{Resource: "key", Name: key}
	}
	may, err := p.client.MayRead(ctx, "", "", "", anonymous, rights)
	switch kind := dial.Classify(err).Kind; {
	case kind == dial.Refused || kind == dial.Denied || kind == dial.Garbled:
		return p.probe(ctx, missing) // something in between does not let the question through
	case err == nil && !may && anonymous:
		return p.filtered("Permission denied: no token is sent, and without one not all that was under %s may be read")
	case err == nil && !may:
		return p.filtered("Permission denied: the token may not read all that was under %s")
	}
	return dial.Explain(ctx, err)
}

// probe asks for keys by name. Consul refuses those that may not be read, whether they are there or not (observed in 1.22). It says
// nothing about keys that no path can express.
func (p *place) probe(ctx context.Context, missing []string) error {
	missing = slices.DeleteFunc(missing, func(key string) bool { return !dial.Expressible("/v1/kv/" + key) })
	for _, key := range missing[:min(len(missing), maxProbes)] {
		pair, _, err := p.client.KV().Get(key, (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
		switch {
		case err != nil:
			return dial.Explain(ctx, err)
		case pair != nil && key != p.prefix:
			return fmt.Errorf("key %s is there, and not in the list: %w", key, dial.ErrForeign)
		}
	}
	return nil
}

// maxProbes is how many keys are asked for by name that are missing at once. The deletion guard looks after more.
const maxProbes = 16

// all asks for everything under the prefix, plainly.
func (p *place) all(ctx context.Context) (listing, error) {
	return p.list(ctx, requestTimeout, &api.QueryOptions{RequireConsistent: true})
}

// requestTimeout is how long an answer may take, besides what Consul was asked to wait.
const requestTimeout = 10 * time.Second

func (p *place) list(ctx context.Context, within time.Duration, q *api.QueryOptions) (listing, error) {
	ctx, cancel := dial.Within(ctx, within)
	defer cancel()
	if q.WaitIndex > 0 {
		ctx = dial.Once(ctx)
	}
	ctx, sent := dial.Watch(ctx)
	pairs, meta, err := p.client.KV().List(p.prefix, q.WithContext(ctx))
	if err = cmp.Or(err, dial.Whole(pairs)); err != nil {
		return listing{}, dial.Explain(ctx, err)
	}
	if meta.ResultsFilteredByACLs {
		return listing{}, p.filtered(partly)
	}
	return listing{read: time.Now(), pairs: pairs, anonymous: sent.Load(), Answer: judge.Answer{
		Index: meta.LastIndex, Confirming: q.RequireConsistent, Leaderless: !meta.KnownLeader,
	}}, nil
}

// pause waits, and returns ctx's error if it ends meanwhile.
func pause(ctx context.Context, d time.Duration) error {
	registry.Sleep(ctx, d)
	return ctx.Err()
}

// A query that waits for news tells nothing of a Consul that is not well, or no longer the one that it was asked of: without a
// leader it goes on waiting, and one that was wiped lets an index that it has not reached wait. Where a proxy, or a connection
// that took its time, held the query meanwhile, that looks like nothing new. So Consul is asked how it is.

// pulse is what the server says that answers stale questions.
type pulse struct {
	dial.Pulse
	index uint64 // of what is under the prefix
}

// pulse asks for the keys at the top, and what they are does not matter: their index is that of the whole.
func (p *place) pulse(ctx context.Context) (pulse, error) {
	ctx, cancel := dial.Within(ctx, requestTimeout)
	defer cancel()
	_, meta, err := p.client.KV().Keys(p.prefix, "/", (&api.QueryOptions{AllowStale: true}).WithContext(ctx))
	if err != nil {
		return pulse{}, err
	}
	return pulse{dial.Pulse{KnownLeader: meta.KnownLeader, LastContact: meta.LastContact}, meta.LastIndex}, nil
}

// waiting is the query that waits for news.
type waiting struct {
	mu    sync.Mutex
	end   context.CancelFunc // nil between queries
	index uint64             // that it was asked with
	back  bool               // what was felt last was of before that
	again bool               // it was ended
}

// begin returns the context of a query with index; end ends it, and reports whether it was ended before, to be asked anew.
func (w *waiting) begin(ctx context.Context, index uint64) (query context.Context, end func() (again bool)) {
	query, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end, w.index, w.back, w.again = cancel, index, false, false
	return query, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.end = nil
		cancel()
		return w.again
	}
}

// felt ends the query if it waits for what comes after an index that Consul has not reached, twice in a row: a server that lags
// behind may say so once.
func (w *waiting) felt(now pulse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	back := now.KnownLeader && now.index < w.index && w.end != nil
	if back && w.back {
		w.again = true
		w.end()
	}
	w.back = back
}
