package consulkv

import (
	"context"
	"sync"

	"github.com/hashicorp/consul/api"

	"tributary/sources/consul/dial"
)

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
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	_, meta, err := p.client.KV().Keys(p.prefix, "/", (&api.QueryOptions{AllowStale: true}).WithContext(ctx))
	if err != nil {
		return pulse{}, err
	}
	return pulse{dial.Pulse{KnownLeader: meta.KnownLeader, LastContact: meta.LastContact}, meta.LastIndex}, nil
}

// feel asks again and again.
func (p *place) feel(ctx context.Context, w *waiting, felt func(pulse)) {
	for pause(ctx, p.pulseEvery) == nil {
		now, err := p.pulse(ctx)
		if err != nil {
			continue // reading meets the same, and tells
		}
		w.felt(now)
		felt(now)
	}
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
