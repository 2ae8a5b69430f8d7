package consulkv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
)

// listing is everything under the prefix at one moment.
type listing struct {
	judge.Answer
	pairs api.KVPairs // in order of keys
	// reset says that the indexes of before mean nothing: Consul was restored or wiped, or has forgotten deletions.
	reset bool
	// held are the keys that Consul does not have, and that stay because of the suspicion.
	held      map[string]bool
	suspicion judge.Suspicion
}

// follow hands on the state of the prefix, first as it is and then each time it changes, and every failure, until ctx ends.
// It returns ctx's error.
func (p *place) follow(ctx context.Context, m *memory, took func(listing), failed func(error)) error {
	retry := p.newBackOff()
	var index uint64 // to ask with
	outage := false
	for {
		l, c, err := p.believed(ctx, m, index, outage)
		wait := p.gap
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			failed(err)
			outage = true
			index = 0 // so that it is known at once when it is over, and not only when something changes
			wait = max(retry.NextBackOff(), dial.Classify(err).RetryAfter)
		default:
			retry.Reset()
			outage = false
			m.take(&l, c, time.Now())
			took(l)
			index = dial.NextIndex(0, l.Index)
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// believed waits until the prefix has changed since index, or for some minutes, and returns what is there, when that is
// certain, and how it differs from what was believed before.
func (p *place) believed(ctx context.Context, m *memory, index uint64, outage bool) (l listing, c judge.Compared, err error) {
	wait := m.wait(p.wait, time.Now())
	if l, err = p.list(ctx, wait+wait/16+requestTimeout, &api.QueryOptions{WaitIndex: index, WaitTime: wait}); err != nil {
		return l, c, err
	}
	c = m.compare(l, outage, time.Now())
	if judge.Judge(c, l.Answer) == judge.Doubt {
		// Before anything is withdrawn, a plain question must have the same answer: a token that was deleted while the query
		// waited, or a server that lags behind, is found out by it.
		if l, err = p.all(ctx); err != nil {
			return l, c, err
		}
		c = m.compare(l, outage, time.Now())
	}
	switch judge.Judge(c, l.Answer) {
	case judge.Foreign:
		return l, c, errForeign
	case judge.Partial, judge.Denied:
		return l, c, &FilteredError{p.prefix}
	}
	if c.Missing > 0 || len(l.pairs) == 0 {
		err = p.mayRead(ctx, m.missing(l))
	}
	return l, c, err
}

// mayRead makes sure that what is missing is not only hidden. From those who have no token Consul hides what they may not
// see without a word (observed in 1.22), but it refuses them a key by name, whether the key is there or not.
func (p *place) mayRead(ctx context.Context, missing []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	for _, key := range append([]string{p.prefix}, missing[:min(len(missing), maxProbes)]...) {
		pair, _, err := p.client.KV().Get(key, (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
		switch {
		case err != nil && errors.Is(context.Cause(ctx), errNoAnswer):
			return errNoAnswer
		case err != nil:
			return err
		case pair != nil && key != p.prefix:
			return fmt.Errorf("key %s is there, and not in the list: %w", key, errForeign)
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
	ctx, cancel := context.WithTimeoutCause(ctx, within, errNoAnswer)
	defer cancel()
	pairs, meta, err := p.client.KV().List(p.prefix, q.WithContext(ctx))
	if err != nil {
		if errors.Is(context.Cause(ctx), errNoAnswer) {
			err = errNoAnswer
		}
		return listing{}, err
	}
	if meta.ResultsFilteredByACLs {
		return listing{}, &FilteredError{p.prefix}
	}
	return listing{pairs: pairs, Answer: judge.Answer{
		Index: meta.LastIndex, Confirming: q.RequireConsistent, Leaderless: !meta.KnownLeader,
	}}, nil
}

// errNoAnswer takes the place of the error of a context, which could be that of the caller.
var errNoAnswer = errors.New("no answer in time")

// pause waits, and returns ctx's error if it ends meanwhile.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
