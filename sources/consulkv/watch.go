package consulkv

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/internal/worker"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
)

// listing has all keys under the prefix at one moment.
type listing struct {
	judge.Answer
	read  time.Time   // when it was read
	pairs api.KVPairs // in order of keys
}

// blockingQuery is the query for changes.
type blockingQuery struct {
	dial.Interrupt
	index atomic.Uint64 // 0 if it does not block
}

// follow publishes the keys until ctx ends, and returns ctx's error.
func (r *run) follow(ctx context.Context) error {
	pulses, ctx := worker.New(ctx)
	defer pulses.Stop()
	pulses.Go(func() { r.watchPulse(ctx) })
	err := r.read(ctx)
	pulses.Stop()
	return cmp.Or(pulses.Wait(), err)
}

func (r *run) read(ctx context.Context) error {
	retry := r.place.newBackOff()
	outage := false
	for index := uint64(0); ; {
		r.blocking.index.Store(index)
		queryContext, end := r.blocking.Begin(ctx)
		listing, compared, err := r.trustedListing(queryContext, index, outage)
		end()
		interrupted := r.blocking.Take()
		wait := r.place.minInterval
		index = 0 // after a failure, the next query does not block
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			retry.Reset()
			outage = false
			r.memory.apply(listing, compared)
			r.publish(listing)
			index = dial.NextIndex(0, listing.Index)
		case !interrupted:
			r.report(r.place.stateOf(err))
			outage = true
			wait = max(retry.NextBackOff(), dial.Classify(err).RetryAfter)
		}
		r.blocking.Pause(ctx, wait)
	}
}

// trustedListing waits until the prefix has changed since index, or for some minutes. It returns a trusted listing, and
// its difference from the last trusted state.
func (r *run) trustedListing(
	ctx context.Context, index uint64, outage bool,
) (listing listing, compared judge.Compared, err error) {
	var missing []string  // missing keys, in order
	var readable []string // missing keys that are certainly not hidden, in order
	queryOptions := &api.QueryOptions{WaitIndex: index, WaitTime: r.memory.wait(r.place.wait, time.Now())}
	for checked, anonymous := false, false; ; {
		if listing, err = r.place.list(ctx, queryOptions); err != nil {
			return listing, compared, err
		}
		compared, missing = r.memory.compare(listing, outage)
		verdict := judge.Judge(compared, listing.Answer)
		hidden := func(key string) bool {
			_, isReadable := slices.BinarySearch(readable, key)
			return !isReadable
		}
		switch {
		case verdict == judge.Foreign:
			return listing, compared, dial.ErrForeign
		case verdict == judge.Doubtful:
			// Before a removal, a plain query must have the same answer: it reveals a token that was deleted while the
			// query waited, and a server that lags.
		case compared.Missing == 0 && len(listing.pairs) > 0,
			checked && listing.Anonymous == anonymous && !slices.ContainsFunc(missing, hidden):
			return listing, compared, nil
		default:
			// Only a list after the check of the rights can be trusted. Keys that went meanwhile are checked, too, but do not
			// cause a third list: keys that come and go all the time would delay all others for ever.
			if err = r.place.mayRead(ctx, listing.Anonymous, missing); err != nil || checked {
				return listing, compared, err
			}
			checked = true
			anonymous = listing.Anonymous
			readable = missing
		}
		queryOptions = confirmed
	}
}

// mayRead checks that missing keys are not only hidden from the token. Consul does not report hidden keys to clients
// without a token, and before 1.11 to any client. So mayRead asks for the rights.
func (p *place) mayRead(ctx context.Context, anonymous bool, missing []string) error {
	ctx, cancel := dial.Within(ctx, p.requestTimeout)
	defer cancel()
	missing = append([]string{p.prefix}, missing...)
	rights := make([]dial.Right, len(missing))
	for i, key := range missing {
		rights[i] = dial.Right{Resource: "key", Name: key}
	}
	allowed, err := p.client.MayRead(ctx, "", "", "", anonymous, rights)
	switch kind := dial.Classify(err).Kind; {
	case kind == dial.Refused || kind == dial.Denied || kind == dial.Garbled:
		return p.probe(ctx, missing) // a proxy blocks the question
	case err == nil && !allowed && anonymous:
		return p.filtered("Permission denied: no token is sent, and without one not all that was under %s may be read")
	case err == nil && !allowed:
		return p.filtered("Permission denied: the token may not read all that was under %s")
	}
	return dial.Explain(ctx, err)
}

// probe reads keys by name. Consul refuses keys without a right, whether they exist or not (observed in 1.22). probe
// skips keys that no path can express.
func (p *place) probe(ctx context.Context, missing []string) error {
	missing = slices.DeleteFunc(missing, func(key string) bool { return !dial.Expressible("/v1/kv/" + key) })
	for _, key := range missing[:min(len(missing), maxProbes)] {
		pair, _, err := p.client.KV().Get(key, confirmed.WithContext(ctx))
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

// confirmed are the options of a query that does not block. The leader answers it after it confirmed that it leads.
var confirmed = &api.QueryOptions{RequireConsistent: true}

// list lists all keys under the prefix.
func (p *place) list(ctx context.Context, queryOptions *api.QueryOptions) (listing, error) {
	read := func(q *api.QueryOptions) (api.KVPairs, *api.QueryMeta, error) {
		pairs, meta, err := p.client.KV().List(p.prefix, q)
		return pairs, meta, cmp.Or(err, dial.Whole(pairs))
	}
	pairs, answer, err := dial.Ask(ctx, p.requestTimeout, 0, queryOptions, read)
	if err == nil && answer.Filtered {
		err = p.filtered("the token sees only part of the keys under %s")
	}
	return listing{Answer: answer, read: time.Now(), pairs: pairs}, err
}

// watchPulse ends the blocking query in two cases that the query itself does not reveal:
//
//   - Consul is behind the index of the query twice in a row; a server that lags may be once. A wiped Consul would wait
//     for an index beyond its own.
//   - Consul does not answer a pulse. The next query does not block, and shows whether Consul hangs. The first answer
//     to a pulse after that ends a pause of the reads.
//
// It also notes whether Consul has a leader: without one, a blocking query goes on waiting.
func (r *run) watchPulse(ctx context.Context) {
	silent := false
	behind := uint64(0) // the index of the query that Consul was behind at the last pulse
	for worker.Wait(ctx, nil, r.place.pulseInterval) == nil {
		pulse, index, err := r.place.pulse(ctx)
		wasSilent := silent
		silent = dial.IsSilent(err)
		if silent && r.blocking.index.Load() > 0 || wasSilent && !silent {
			r.blocking.Raise()
		}
		if err != nil {
			continue // the reads report the same failure
		}
		switch queried := r.blocking.index.Load(); {
		case !pulse.KnownLeader || index >= queried:
			behind = 0
		case behind != queried:
			behind = queried
		default:
			behind = 0
			r.blocking.Raise()
		}
		r.applyPulse(pulse)
	}
}

// pulse lists the top level of the prefix, for the state of the server and the index only.
func (p *place) pulse(ctx context.Context) (pulse dial.Pulse, index uint64, err error) {
	ctx, cancel := dial.Within(ctx, p.requestTimeout)
	defer cancel()
	_, meta, err := p.client.KV().Keys(p.prefix, "/", (&api.QueryOptions{AllowStale: true}).WithContext(ctx))
	if err != nil {
		return dial.Pulse{}, 0, err
	}
	return dial.Pulse{KnownLeader: meta.KnownLeader, LastContact: meta.LastContact}, meta.LastIndex, nil
}
