package eureka

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"tributary/internal/worker"
	"tributary/sources/eureka/client"
	"tributary/sources/eureka/wire"
)

// Servers cache their listings. A listing that was made while an instance registered may lack it for minutes, and does not show that. And a
// server that is cut off from instances and peers lets all leases expire. So before an instance goes, the servers are asked about it: these
// answers are not cached. For one that has not deregistered, servers other than the followed one are asked, too: one that renews its lease
// knows better. If none does, the followed server's answer counts.

// advance takes a reading into the state, after it asked the servers about the instances that would go.
func advance(ctx context.Context, f *follower, s *state, r reading, at time.Time) error {
	if r.unchanged {
		s.read, s.away = at, time.Time{}
	} else {
		s.note(r, at)
	}
	questions := s.questions(at, f.again)
	if len(questions) == 0 {
		return nil
	}
	f.counts.singles.Add(1)
	answers, err := f.ask(ctx, questions)
	if err != nil {
		return err
	}
	f.compare = s.decide(answers, questions, f.server, at) || f.compare
	return nil
}

// maxDoubts bounds the instances in doubt that one round asks about although they are not due.
const maxDoubts = 100

// question is an instance that the servers are asked about.
type question struct {
	instance string
	*loss
	due    bool // it goes unless a server confirms it
	others bool // servers other than the followed one are asked, too
}

// questions returns the instances to ask about: all that are due, and from time to time some in doubt. The one that was asked about longest
// ago comes first, so that unanswered ones do not hold up others.
func (s *state) questions(at time.Time, again time.Duration) (all []question) {
	usual, due := at.Sub(s.asked) >= again, 0
	for instance, l := range s.lost {
		q := question{instance, l, !at.Before(s.holdEnd(instance, l)), !s.deleted[instance].said}
		switch {
		case l.gone || l.key == wire.Key{} || !q.due && !usual:
			continue
		case q.due:
			due++
		}
		all = append(all, q)
	}
	if usual {
		s.asked = at
	}
	dueFirst := func(q question) int {
		if q.due {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b question) int {
		return cmp.Or(cmp.Compare(dueFirst(a), dueFirst(b)), a.asked.Compare(b.asked), a.key.Compare(b.key))
	})
	return all[:min(len(all), due+maxDoubts)]
}

// decide takes the answers, and reports whether a server other than the followed one confirms an instance that the followed one lost.
func (s *state) decide(got answers, all []question, followed string, at time.Time) (elsewhere bool) {
	s.version++
	for _, q := range all {
		l, a := q.loss, got.of[q.key]
		if a.asked {
			l.asked = at
		}
		before := l.confirmed != "" && l.confirmed != followed
		none := a.noes == got.others || !before && a.noes == len(got.alive) // no other server knows it
		switch {
		case a.found != "" && !s.mapper.Serves(a.instance):
			l.gone = true
		case a.found != "":
			l.same, l.seen, l.missing, l.unanswered, l.confirmed = false, at, at, time.Time{}, a.found
			l.ignoredEviction = s.deleted[q.instance].evicted
			elsewhere = elsewhere || !before && a.found != followed
		case !q.due && l.confirmed == "": // a server without its memory proves nothing
		case !a.answered:
			l.unanswered = cmp.Or(l.unanswered, at)
		case !q.others || none || before && q.due:
			l.gone = true
		case q.due:
			l.unanswered = cmp.Or(l.unanswered, at)
		}
	}
	s.Reconsider()
	return elsewhere
}

// answers are the servers' answers about single instances.
type answers struct {
	others int             // servers other than the followed one
	alive  map[string]bool // those of them that answered anything
	of     map[wire.Key]*answer
}

type answer struct {
	asked    bool   // there was time for it
	found    string // the server where its lease is renewed; empty if there is none
	instance wire.Instance
	answered bool // the followed server does not know it, or refuses to answer
	noes     int  // answers of other servers that do not know it
}

// askers bounds the concurrent requests to a server. A single one may take 1/requestShare of our patience, so that unanswered ones leave
// time for the others.
const (
	askers       = 4
	requestShare = 4
)

// ask asks the servers about instances, for as long as our patience lasts.
func (f *follower) ask(ctx context.Context, all []question) (answers, error) {
	got := answers{others: len(f.Servers()) - 1, alive: map[string]bool{}, of: map[wire.Key]*answer{}}
	for _, q := range all {
		got.of[q.key] = &answer{}
	}
	var mu sync.Mutex // guards got
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	workers, asking := worker.New(ctx)
	defer workers.Stop()
	for _, server := range f.Servers() {
		rest := make(chan wire.Key, len(all))
		for _, q := range all {
			if q.others || server == f.server {
				rest <- q.key
			}
		}
		close(rest)
		for range min(askers, len(rest)) {
			workers.Go(func() {
				for key := range rest {
					one, cancel := context.WithTimeout(asking, f.patience/requestShare)
					reply, err := f.One(one, server, key)
					cancel()
					if asking.Err() != nil {
						return
					}
					mu.Lock()
					got.take(server, server == f.server, key, reply, err, f.now())
					mu.Unlock()
				}
			})
		}
	}
	err := workers.Wait()
	return got, err
}

// take takes a server's answer about an instance.
func (h *answers) take(server string, followed bool, key wire.Key, reply *client.Reply, err error, now time.Time) {
	a := h.of[key]
	a.asked = true
	if err != nil {
		a.answered = a.answered || followed && client.Refused(err)
		return
	}
	if !followed {
		h.alive[server] = true
	}
	there := now.Add(reply.Ahead).UnixMilli()
	switch n := slices.IndexFunc(reply.Instances, func(i wire.Instance) bool { return i.Key == key && i.Renews(there) }); {
	case n >= 0 && reply.Instances[n].Broken == nil && (a.found == "" || followed):
		a.found, a.instance = server, reply.Instances[n]
	case n < 0 && followed:
		a.answered = true
	case n < 0:
		a.noes++
	}
}
