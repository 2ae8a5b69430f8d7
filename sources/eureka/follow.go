package eureka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"tributary/internal/worker"
	"tributary/sources/eureka/client"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
)

// asker asks servers.
type asker interface {
	Servers() []string
	All(ctx context.Context, server string) (*client.Reply, error)
	Changes(ctx context.Context, server string) (*client.Reply, error)
	One(ctx context.Context, server string, key wire.Key) (*client.Reply, error)
}

// follower follows one of several servers, and another one when that fails.
type follower struct {
	asker
	counts   *counts
	again    time.Duration // the least time between full reads because of changes that do not fit
	patience time.Duration // for the other servers once one has answered
	now      func() time.Time

	server       string // the followed one; empty if none is
	view         view.View
	marks        view.Marks // identify the memory of the server: from answers that certainly are of one server
	changes      *client.Reply
	noDeltas     bool // the server does not offer changes
	missedDeltas int  // failed reads of changes after a full read, in a row
	outage       bool // no server has answered since the last reading
	readAll      time.Time

	compare bool // compare the servers soon: another one has instances that the followed one lost
}

func newFollower(a asker, c *counts, interval time.Duration, marks view.Marks) *follower {
	return &follower{asker: a, counts: c, again: 2 * interval, patience: 2 * time.Second, now: time.Now, marks: marks, outage: true}
}

// reading is the result of a read.
type reading struct {
	view      view.View
	same      bool // the server's memory is that of the previous reading
	outage    bool // an outage preceded it
	unchanged bool // it equals the previous reading
	deleted   []wire.Instance
	ahead     time.Duration // of the server's clock
	nameless  int
	why       error
}

// maxMissedDeltas is how many reads of changes must fail before a full reading counts without them.
const maxMissedDeltas = 3

// next reads changes. It reads everything at the start, after the loss of a server, if changes are not offered or do not fit, and if all is
// set: then it also compares the servers, and follows the first one that lists about as much as any.
func (f *follower) next(ctx context.Context, all bool) (reading, error) {
	if all = all || f.compare && time.Since(f.readAll) >= f.again; all {
		f.compare = false
	}
	if f.server != "" && !all {
		r, done, err := f.follow(ctx)
		if done {
			return r, err
		}
	}
	r, err := f.everything(ctx, all)
	if err != nil {
		f.server, f.outage = "", true
		return reading{}, err
	}
	f.outage = false
	return r, nil
}

// follow reads changes. It is done unless everything must be read.
func (f *follower) follow(ctx context.Context) (r reading, done bool, err error) {
	if f.noDeltas {
		return r, false, nil
	}
	changes, err := f.Changes(ctx, f.server)
	switch {
	case ctx.Err() != nil:
		return r, true, ctx.Err()
	case errors.Is(err, client.ErrNoChanges):
		f.noDeltas = true
		return r, false, nil
	case err != nil:
		f.server = ""
		return r, false, nil //nolint:nilerr // another server may answer
	}
	f.counts.changes.Add(1)
	before := f.changes
	soon := time.Since(f.readAll) < f.again
	asBefore := reading{view: f.view, same: true, unchanged: true}
	if before != nil && before.Sum == changes.Sum {
		return asBefore, f.view.Whole() || soon, nil
	}
	if before != nil && changes.Version < before.Version {
		return r, false, nil // it lost its memory, or is another server
	}
	marks := view.MarksOf(changes.Answer)
	own := f.marks.Continues(marks)
	after := f.view.Change(changes.Answer)
	if !after.Whole() {
		f.counts.mismatches.Add(1)
	}
	switch {
	case own && after.Whole():
		f.marks = f.marks.With(marks)
	case own && soon, !own && f.view.Fits(changes.Answer):
	default:
		return asBefore, soon, nil // they may be of another server behind the same address: ignored until everything is read
	}
	f.view, f.changes = after, changes
	return f.reading(changes, true), true, nil
}

func (f *follower) reading(last *client.Reply, same bool) reading {
	r := reading{view: f.view, same: same, outage: f.outage, ahead: last.Ahead, nameless: last.Nameless, why: last.Why}
	for _, i := range last.Instances {
		if i.Action == wire.Deleted {
			r.deleted = append(r.deleted, i)
		}
	}
	return r
}

// everything reads the whole listing and then the changes: some servers make the two answers at different times.
func (f *follower) everything(ctx context.Context, anew bool) (reading, error) {
	if anew {
		f.noDeltas = false
	}
	var all *client.Reply
	if f.server != "" && !anew {
		var err error
		if all, err = f.All(ctx, f.server); err != nil {
			f.server = ""
		}
	}
	if f.server == "" || anew {
		before := f.server
		var err error
		if f.server, all, err = f.choose(ctx); err != nil {
			return reading{}, err
		}
		if f.server != before {
			f.counts.servers.Add(1)
			f.noDeltas = false
		}
	}
	f.counts.full.Add(1)
	f.readAll = time.Now()
	v, last, marks := view.All(all.Answer, f.view), all, view.MarksOf(all.Answer)
	f.changes = nil
	if !f.noDeltas {
		changes, err := f.Changes(ctx, f.server)
		switch {
		case errors.Is(err, client.ErrNoChanges):
			f.noDeltas = true
		case err != nil && f.missedDeltas < maxMissedDeltas:
			// The listing may be older than changes that are known already. Try again the next time.
			f.missedDeltas++
			return reading{}, fmt.Errorf("%w: %w", errUnreachable, err)
		case err == nil:
			f.counts.changes.Add(1)
			f.missedDeltas = 0
			f.changes = changes
			own := marks.Continues(view.MarksOf(changes.Answer))
			if after := v.Change(changes.Answer); own && (after.Whole() || !v.Whole()) || v.Fits(changes.Answer) {
				v = after
			}
			last = &client.Reply{Ahead: changes.Ahead, Answer: &wire.Answer{
				Instances: changes.Instances, Nameless: all.Nameless + changes.Nameless, Why: all.Why,
			}}
			if last.Why == nil {
				last.Why = changes.Why
			}
		}
	}
	same := f.marks.Continues(marks)
	if !same && len(f.marks) > 0 {
		f.counts.memories.Add(1)
	}
	f.view, f.marks = v, marks
	return f.reading(last, same), nil
}

// signs returns marks that recognize the followed server after a restart.
func (f *follower) signs() view.Marks { return f.marks.In(f.view).Oldest() }

// choose asks all servers at once, and returns the first one that lists about as much as any: a server that just started lists nothing.
// After the first answer it waits for the others only for patience.
func (f *follower) choose(ctx context.Context) (string, *client.Reply, error) {
	patient, end := context.WithCancel(ctx)
	defer end()
	workers, asking := worker.New(patient)
	defer workers.Stop()
	var mu sync.Mutex // guards replies, failed and late
	replies, failed := map[string]*client.Reply{}, map[string]error{}
	var late *time.Timer
	for _, server := range f.Servers() {
		workers.Go(func() {
			reply, err := f.All(asking, server)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed[server] = err
				return
			case late == nil:
				late = time.AfterFunc(f.patience, end)
			}
			replies[server] = reply
		})
	}
	err := workers.Wait()
	if late != nil {
		late.Stop()
	}
	switch {
	case err != nil:
		return "", nil, err
	case ctx.Err() != nil:
		return "", nil, ctx.Err()
	case len(replies) == 0:
		return "", nil, failures(f.Servers(), failed)
	}
	server := fullest(f.Servers(), replies)
	return server, replies[server], nil
}

// fullest returns the first server that lists at least nine tenths of the longest listing.
func fullest(servers []string, replies map[string]*client.Reply) string {
	most := 0
	for _, r := range replies {
		most = max(most, len(r.Instances))
	}
	for _, server := range servers {
		if r := replies[server]; r != nil && 10*len(r.Instances) >= 9*most {
			return server
		}
	}
	return ""
}

// failures joins the errors of all servers. It is a denial if one of them is.
func failures(servers []string, failed map[string]error) error {
	kind := errUnreachable
	var texts []string
	for _, server := range servers {
		texts = append(texts, failed[server].Error())
		if errors.Is(failed[server], client.ErrDenied) {
			kind = client.ErrDenied
		}
	}
	return fmt.Errorf("%w: %s", kind, strings.Join(texts, "; "))
}

var errUnreachable = errors.New("no server answers")
