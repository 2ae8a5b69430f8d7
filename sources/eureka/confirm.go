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

// Servers make their listings in advance. One that they make while an instance registers may lack it, and can stay for minutes, which
// neither its hash code nor anything else of it shows. And a server that is parted from instances and from its peers has all their leases
// expire. So nothing goes because a listing says so, or has not had it for long, before the servers were asked for that very instance:
// these answers are not cached. Another server than the one that is followed is asked for who has not deregistered; it knows better if the
// lease is renewed there. Where nobody does, the word of the server that is followed counts.

// advance takes what a reading says into the state, after the servers were asked for what that would have go.
func advance(ctx context.Context, f *follower, s *state, r reading, at time.Time) error {
	if r.unchanged {
		s.read = at
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

// maxDoubts is how many instances are asked for at a time of which nothing has to be decided yet.
const maxDoubts = 100

// question is an instance that the servers are asked for.
type question struct {
	instance string
	*loss
	due    bool // it goes unless it is there
	others bool // the servers that are not followed are asked, too
}

// questions are the instances that servers are to be asked for: all that go if these do not know them, and from time to time some that are
// in doubt. Who was not asked for longest comes first, so that none that is not answered holds up others.
func (s *state) questions(at time.Time, again time.Duration) (all []question) {
	usual, due := at.Sub(s.asked) >= again, 0
	for instance, l := range s.lost {
		q := question{instance, l, !at.Before(s.deadline(instance, l)), !s.deleted[instance].said}
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

// decide notes what servers answered, and reports whether one that is not followed knows of an instance that the other one lost.
func (s *state) decide(got answers, all []question, followed string, at time.Time) (elsewhere bool) {
	s.version++
	for _, q := range all {
		l, a := q.loss, got.of[q.key]
		if a.asked {
			l.asked = at
		}
		before := l.confirmed != "" && l.confirmed != followed
		none := a.noes == got.others || !before && a.noes == len(got.alive) // of the others knows of it
		switch {
		case a.found != "" && !s.mapper.Serves(a.instance):
			l.gone = true
		case a.found != "":
			l.same, l.seen, l.missing, l.unanswered, l.confirmed = false, at, at, time.Time{}, a.found
			l.refuted = s.deleted[q.instance].evicted
			elsewhere = elsewhere || !before && a.found != followed
		case !q.due && l.confirmed == "": // a server that has forgotten proves nothing
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

// answers are what servers say of single instances.
type answers struct {
	others int             // servers that are not followed
	alive  map[string]bool // those of them that said anything
	of     map[wire.Key]*answer
}

type answer struct {
	asked    bool   // there was time for it
	found    string // the server where its lease is renewed; empty if there is none
	instance wire.Instance
	answered bool // the server that is followed knows nothing of it, or refuses to say anything
	noes     int  // of the others
}

// askers is how many requests at a time a server gets, and requestShare what part of our patience a single one may take: with all askers,
// so many that are not answered leave time for the others.
const (
	askers       = 4
	requestShare = 4
)

// ask asks servers for instances, for as long as our patience lasts, of which a single request has a part: one that is not answered holds
// up no other.
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

// take takes what a server answered about an instance.
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
