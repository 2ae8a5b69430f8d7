package consulkv

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/sources/consul/dial"
)

// listing is everything under the prefix at one moment.
type listing struct {
	pairs api.KVPairs // in order of keys
	index uint64
	// reset says that the index went backwards: Consul was restored or wiped, or has forgotten deletions.
	reset bool
	// wiped says that the index went backwards and nothing is left, and nothing was written since. Nobody has deleted
	// anything: that would have moved the index forward.
	wiped bool
}

// follow hands on the state of the prefix, first as it is and then each time it changes, and every failure, until ctx ends.
// It returns ctx's error. known are the keys that were there before.
func (p *place) follow(ctx context.Context, known []string, took func(listing), failed func(error)) error {
	retry := p.newBackOff()
	var index, seen uint64 // to ask with, and of the last answer
	lost := false          // the index went backwards, and there was nothing since
	for {
		l, err := p.read(ctx, index)
		if err == nil {
			err = p.believable(ctx, l, known)
		}
		l.reset = l.index < seen
		wait := p.gap
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			failed(err)
			index = 0 // so that it is known at once when it is over, and not only when something changes
			wait = max(retry.NextBackOff(), dial.Classify(err).RetryAfter)
		default:
			retry.Reset()
			l.reset = l.reset || lost // what is there now was not there before
			lost = len(l.pairs) == 0 && l.reset
			l.wiped = lost
			took(l)
			if !l.wiped {
				known = keysOf(l.pairs)
			}
			index = dial.NextIndex(0, l.index)
			seen = l.index
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// read waits until the prefix has changed since index, or for some minutes, and returns what is there.
func (p *place) read(ctx context.Context, index uint64) (listing, error) {
	l, err := p.list(ctx, p.wait+p.wait/16+requestTimeout, &api.QueryOptions{WaitIndex: index, WaitTime: p.wait})
	if err != nil || len(l.pairs) > 0 {
		return l, err
	}
	// Before anything is withdrawn, a plain question must have the same answer: a token that was deleted while the query
	// waited, or a server that lags behind, is found out by it.
	return p.all(ctx)
}

// believable makes sure that what is missing in l is not only hidden. From those who have no token Consul hides what they may
// not see without a word (observed in 1.22), but it refuses them a key by name, whether the key is there or not.
func (p *place) believable(ctx context.Context, l listing, known []string) error {
	seen := make(map[string]bool, len(l.pairs))
	for _, pair := range l.pairs {
		seen[pair.Key] = true
	}
	missing := slices.DeleteFunc(slices.Clone(known), func(key string) bool { return seen[key] })
	if len(l.pairs) > 0 && len(missing) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	for _, key := range append([]string{p.prefix}, missing[:min(len(missing), maxProbes)]...) {
		if _, _, err := p.client.KV().Get(key, (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx)); err != nil {
			if errors.Is(context.Cause(ctx), errNoAnswer) {
				err = errNoAnswer
			}
			return err
		}
	}
	return nil
}

// maxProbes is how many keys are asked for by name that are missing at once. The deletion guard looks after more.
const maxProbes = 16

func keysOf(pairs api.KVPairs) (keys []string) {
	for _, pair := range pairs {
		keys = append(keys, pair.Key)
	}
	return keys
}

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
	return listing{pairs: pairs, index: meta.LastIndex}, nil
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
