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
	"tributary/sources/presence"
)

// listing has all keys under the prefix at one moment.
type listing struct {
	judge.Answer
	read      time.Time   // when
	pairs     api.KVPairs // in order of keys
	anonymous bool        // no token was sent
	// reset says that earlier indexes have no meaning: Consul was restored or wiped, or has forgotten deletions.
	reset bool
	// held are the keys that Consul lacks, and that stay because of the suspicion.
	held      []string
	suspicion presence.Suspicion
}

// follower handles the results of following a prefix.
type follower struct {
	took   func(listing) // the state of the prefix, at first and after each change
	failed func(error)   // every failure
	felt   func(pulse)   // the state of Consul, again and again, on another goroutine
}

// follow calls f until ctx ends, and returns ctx's error.
func (p *place) follow(ctx context.Context, m *memory, f follower) error {
	feeling, ctx := worker.New(ctx)
	defer feeling.Stop()
	var w waiting
	feeling.Go(func() {
		for worker.Wait(ctx, nil, p.pulseEvery) == nil {
			if now, err := p.pulse(ctx); err == nil { // the reads report the same failure
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
	var index uint64 // of the next query
	outage := false
	for {
		asking, end := w.begin(ctx, index)
		l, c, err := p.believed(asking, m, index, outage)
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
			index = 0 // so that the next query returns at once when the failure is over
			wait = max(retry.NextBackOff(), dial.Classify(err).RetryAfter)
		default:
			retry.Reset()
			outage = false
			m.take(&l, c)
			f.took(l)
			index = dial.NextIndex(0, l.Index)
		}
		if err := worker.Wait(ctx, nil, wait); err != nil {
			return err
		}
	}
}

// believed waits until the prefix has changed since index, or for some minutes, and returns a trusted listing, and its
// difference from the last trusted state.
func (p *place) believed(ctx context.Context, m *memory, index uint64, outage bool) (l listing, c judge.Compared,
	err error,
) {
	var missing []string
	look := func(read listing, failed error) error {
		if l, err = read, failed; err == nil {
			c, missing = m.compare(l, outage)
		}
		return err
	}
	wait := m.wait(p.wait, time.Now())
	err = look(p.list(ctx, wait+wait/16+requestTimeout, &api.QueryOptions{WaitIndex: index, WaitTime: wait}))
	if err == nil && judge.Judge(c, l.Answer) == judge.Doubt {
		// Before a removal, a plain query must have the same answer: it reveals a token that was deleted while the query
		// waited, and a server that lags.
		err = look(p.all(ctx))
	}
	if err = cmp.Or(err, p.refusal(c, l)); err != nil || c.Missing == 0 && len(l.pairs) > 0 {
		return l, c, err
	}
	// The rights to the missing keys were checked after the list, so only a later list can be trusted.
	queried, anonymous := missing, l.anonymous
	if err = p.mayRead(ctx, anonymous, queried); err == nil {
		err = look(p.all(ctx))
	}
	if err = cmp.Or(err, p.refusal(c, l)); err != nil {
		return l, c, err
	}
	more := slices.ContainsFunc(missing, func(key string) bool {
		_, former := slices.BinarySearch(queried, key)
		return !former
	})
	if more || l.anonymous != anonymous { // the rights to these are unknown; this cannot repeat for long
		err = p.mayRead(ctx, l.anonymous, missing)
	}
	return l, c, err
}

// refusal is the error of a list that cannot be trusted.
func (p *place) refusal(c judge.Compared, l listing) error {
	switch judge.Judge(c, l.Answer) {
	case judge.Foreign:
		return dial.ErrForeign
	case judge.Partial, judge.Denied:
		return p.filtered(partly)
	}
	return nil
}

// mayRead checks that missing keys are not only hidden from the token. Consul does not report hidden keys to clients
// without a token, and before 1.11 to any client. So mayRead asks for the rights.
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
		return p.probe(ctx, missing) // a proxy blocks the question
	case err == nil && !may && anonymous:
		return p.filtered("Permission denied: no token is sent, and without one not all that was under %s may be read")
	case err == nil && !may:
		return p.filtered("Permission denied: the token may not read all that was under %s")
	}
	return dial.Explain(ctx, err)
}

// probe reads keys by name. Consul refuses keys without a right, whether they exist or not (observed in 1.22). probe
// skips keys that no path can express.
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

// maxProbes is the limit of missing keys that are read by name. The deletion guard covers larger losses.
const maxProbes = 16

// all lists all keys under the prefix, without waiting.
func (p *place) all(ctx context.Context) (listing, error) {
	return p.list(ctx, requestTimeout, &api.QueryOptions{RequireConsistent: true})
}

// requestTimeout is the limit of a request, without the requested wait.
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

// A blocking query does not reveal a failing Consul: without a leader it goes on waiting, and a wiped Consul waits for
// an index beyond its own. A proxy or a slow connection may hold the query meanwhile. So another request checks Consul.

// pulse is the state of the server that answers stale queries.
type pulse struct {
	dial.Pulse
	index uint64 // of the prefix
}

// pulse lists the top level of the prefix, for its index only.
func (p *place) pulse(ctx context.Context) (pulse, error) {
	ctx, cancel := dial.Within(ctx, requestTimeout)
	defer cancel()
	_, meta, err := p.client.KV().Keys(p.prefix, "/", (&api.QueryOptions{AllowStale: true}).WithContext(ctx))
	if err != nil {
		return pulse{}, err
	}
	return pulse{dial.Pulse{KnownLeader: meta.KnownLeader, LastContact: meta.LastContact}, meta.LastIndex}, nil
}

// waiting is the blocking query.
type waiting struct {
	mu    sync.Mutex
	end   context.CancelFunc // nil between queries
	index uint64             // of the query
	back  bool               // the last pulse had an older index
	ended bool               // the query was ended
}

// begin returns the context of a query with index; end ends it, and reports whether felt has ended it, for a new query.
func (w *waiting) begin(ctx context.Context, index uint64) (query context.Context, end func() (again bool)) {
	query, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end, w.index, w.back, w.ended = cancel, index, false, false
	return query, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.end = nil
		cancel()
		return w.ended
	}
}

// felt ends the query if Consul is behind its index twice in a row: a server that lags may be once.
func (w *waiting) felt(now pulse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	back := now.KnownLeader && now.index < w.index && w.end != nil
	if back && w.back {
		w.ended = true
		w.end()
	}
	w.back = back
}
