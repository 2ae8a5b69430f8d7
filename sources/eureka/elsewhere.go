package eureka

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"tributary/internal/worker"
	"tributary/sources/eureka/client"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
)

// known is an instance as another server than the one that is followed had it.
type known struct {
	wire.Instance
	heard time.Time // when a server said so last; zero if none did
}

// askElsewhere adds to a reading what the server that is followed lists no longer though it did not hear of an end, and another one does: a
// server that is parted from instances and from its peers has all their leases expire. The others are asked for single instances, since
// these answers are not cached: one counts if its lease is renewed there. Where nobody knows better, the word of the server that is
// followed counts.
func (f *follower) askElsewhere(ctx context.Context, before view.View, r *reading) error {
	if r.unchanged && len(f.elsewhere) == 0 {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(f.Servers()), func(s string) bool { return s == f.server })
	if len(others) == 0 {
		return nil
	}
	missing := maps.Clone(f.elsewhere)
	if missing == nil {
		missing = map[wire.Key]known{}
	}
	lost, end := false, f.now()
	goes := func(key wire.Key) {
		if _, there := f.elsewhere[key]; there { // whoever is followed does not say so
			i := missing[key].Instance
			i.Action, i.Evicted = wire.Deleted, end.Add(r.ahead).UnixMilli()
			r.deleted = append(r.deleted, i)
		}
		delete(missing, key)
	}
	if !r.unchanged {
		for _, i := range before.Without(r.view) {
			if _, there := missing[i.Key]; !there {
				missing[i.Key], lost = known{Instance: i}, true
			}
		}
		for key := range missing {
			if r.view.Lists(key) {
				delete(missing, key)
			}
		}
		for _, i := range r.deleted {
			if _, there := missing[i.Key]; there && i.Renews(i.Evicted) {
				goes(i.Key)
			}
		}
	}
	if now := f.now(); len(missing) > 0 && (lost || now.Sub(f.asked) >= f.again) {
		f.asked = now
		said, err := f.hear(ctx, others, slices.SortedFunc(maps.Keys(missing), wire.Key.Compare))
		if err != nil {
			return err
		}
		for key, was := range missing {
			if is, stays := said.judge(was, key, now, f.hold); stays {
				missing[key] = is
				_, old := f.elsewhere[key]
				f.parted = f.parted || !old
			} else {
				goes(key)
			}
		}
		r.unchanged = r.unchanged && len(f.elsewhere) == 0
	}
	f.elsewhere = missing
	for _, key := range slices.SortedFunc(maps.Keys(missing), wire.Key.Compare) {
		if i := missing[key].Instance; i.Registered != 0 { // else all that is known is its name
			r.elsewhere = append(r.elsewhere, i)
		}
	}
	return nil
}

// hearsay is what other servers say of single instances.
type hearsay struct {
	servers int                        // that were asked
	alive   map[string]bool            // that said anything
	found   map[wire.Key]wire.Instance // whose lease is renewed
	noes    map[wire.Key]int           // how many servers said that there is none
	refused map[wire.Key]bool          // a server will not say anything of it
	silent  map[wire.Key]bool          // a server did not answer in the time that a request has
}

// judge reports whether an instance counts that the server which is followed has lost, and how it is known then.
func (h hearsay) judge(was known, key wire.Key, now time.Time, hold time.Duration) (known, bool) {
	if i, found := h.found[key]; found {
		return known{i, now}, true
	}
	noes, before := h.noes[key], !was.heard.IsZero()
	switch {
	case noes == h.servers, !before && noes == len(h.alive):
		return was, false
	case !before: // there was no time to ask for all
		was.heard = now
	}
	return was, now.Sub(was.heard) < hold
}

// askers is how many requests at a time a server gets.
const askers = 4

// hear asks servers for instances, for as long as our patience lasts, of which a single request has a part: one that is not answered holds
// up no other.
func (f *follower) hear(ctx context.Context, servers []string, keys []wire.Key) (hearsay, error) {
	said := hearsay{
		servers: len(servers), alive: map[string]bool{}, found: map[wire.Key]wire.Instance{}, noes: map[wire.Key]int{},
		refused: map[wire.Key]bool{}, silent: map[wire.Key]bool{},
	}
	var mu sync.Mutex // guards said
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	workers, asking := worker.New(ctx)
	defer workers.Stop()
	for _, server := range servers {
		rest := make(chan wire.Key, len(keys))
		for _, key := range keys {
			rest <- key
		}
		close(rest)
		for range min(askers, len(keys)) {
			workers.Go(func() {
				for key := range rest {
					one, cancel := context.WithTimeout(asking, f.patience/requestShare)
					reply, err := f.One(one, server, key)
					cancel()
					if asking.Err() != nil {
						return
					}
					mu.Lock()
					said.take(server, key, reply, err, f.now())
					mu.Unlock()
				}
			})
		}
	}
	err := workers.Wait()
	return said, err
}

// requestShare is what part of our patience a single request may take: with all askers, so many that are not answered leave time for the
// others.
const requestShare = 4

// take takes what a server answered about an instance.
func (h *hearsay) take(server string, key wire.Key, reply *client.Reply, err error, now time.Time) {
	switch {
	case client.Refused(err):
		h.refused[key] = true
		return
	case err != nil:
		h.silent[key] = true
		return
	}
	h.alive[server] = true
	there := now.Add(reply.Ahead).UnixMilli()
	switch n := slices.IndexFunc(reply.Instances, func(i wire.Instance) bool { return i.Key == key && i.Renews(there) }); {
	case n < 0:
		h.noes[key]++
	case reply.Instances[n].Broken == nil:
		h.found[key] = reply.Instances[n]
	}
}

// keys are those of what is known from elsewhere, for the next run.
func (f *follower) keys() []wire.Key {
	return slices.SortedFunc(maps.Keys(f.elsewhere), wire.Key.Compare)
}

// recall takes keys of an earlier run.
func (f *follower) recall(keys []wire.Key) {
	f.elsewhere = map[wire.Key]known{}
	for _, key := range keys {
		f.elsewhere[key] = known{Instance: wire.Instance{Key: key}, heard: f.now()}
	}
}
