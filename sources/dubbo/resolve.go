package dubbo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"tributary/internal/worker"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// revision is what metadata is of: instances with the same one serve the same.
type revision struct{ application, revision string }

// noServices is the revision of an instance that serves nothing.
const noServices = "0"

// resolver finds out what instances serve.
type resolver struct {
	// read-only
	ctx context.Context

	workers *worker.Group
	maxKept int
	again   time.Duration // see Source

	// guarded by the mu of run
	all  map[revision]*resolution
	kept int // bytes of all metadata

	mapping mappings
}

// mappings is what the registry says which applications serve which interfaces, as it was read last. Reading it is a read for each
// interface.
type mappings struct {
	turn chan struct{} // taken by who reads it

	// owned by who has the turn
	of    map[string][]string // interfaces, by application
	err   error               // why it was not read last, and of is what was read before; nil if it was, or there is none
	due   time.Time           // when it is read again
	pause time.Duration       // after that
}

// resolution is what is found out about one revision. The mu of run guards it.
type resolution struct {
	of    revision
	users map[*instance]bool
	end   context.CancelFunc
	ended bool // nobody needs it any more

	tried    bool
	failed   int                // tries that found nothing
	metadata *provider.Metadata // nil while it is not known
	excess   string             // that its metadata has no room, in those words; empty if that is not so
	how      string
	err      error
	guess    []string // the interfaces that the application is said to serve, if nothing better is known
	warnings []string
}

// The pace at which it is tried again to find out what instances serve: Java writes an instance before its metadata, and a provider that
// cannot be asked may be about to go.
const (
	firstTry = 500 * time.Millisecond
	lastTry  = 10 * time.Second
	perTry   = 8 * time.Second // for all that is done at one try
)

// someTries is after how many tries it is said that it is not known what instances serve: Java writes an instance before its metadata.
const someTries = 3

// The mapping is read again after a pause, which grows: at most to an hour while nothing is asked for that was not before. mappingShare is
// how many times as long as it takes to read the pause is at least.
const (
	firstPause   = 10 * time.Second
	lastPause    = time.Hour
	mappingShare = 20
)

// takeInstance notes what an instance is; nil if it is not Dubbo's. The caller holds mu.
func (r *run) takeInstance(i *instance, now *provider.Instance, err error) {
	i.reported = true
	if errors.Is(err, registry.ErrAbsent) {
		return // what lists it will tell
	}
	i.problem = ""
	if err != nil {
		i.problem = problemOf(i) + err.Error()
		return // what was known of it stays
	}
	i.read, i.dubbo = true, now != nil
	if now == nil {
		i.Instance = provider.Instance{}
		r.state.drop(i)
		return
	}
	i.Instance = *now
	if now.Failing != "" {
		r.state.drop(i)
		return
	}
	r.need(i)
}

// problemOf is what the problems of an instance begin with.
func problemOf(i *instance) string { return fmt.Sprintf("instance %s of %s: ", i.id, i.application) }

// need has it found out what an instance serves. The caller holds mu.
func (r *run) need(i *instance) {
	of := revision{i.Application, i.Revision}
	if i.needs == nil || i.needs.of != of {
		r.state.release(i)
		n := r.resolver.all[of]
		if n == nil || n.ended {
			n = &resolution{of: of, users: map[*instance]bool{}}
			if of.revision != noServices { // which there is nothing to find out about
				r.resolver.all[of] = n
			}
			r.begin(n)
		}
		n.users[i] = true
		i.needs = n
	}
	r.apply(i)
}

// release lets go of what an instance needed. The caller holds mu of run.
func (s *state) release(i *instance) {
	n := i.needs
	i.needs = nil
	if n == nil {
		return
	}
	delete(n.users, i)
	if len(n.users) == 0 {
		n.ended = true
		if n.end != nil {
			n.end()
		}
	}
}

// begin finds out about a revision, until it is known or nobody needs it. The caller holds mu.
func (r *run) begin(n *resolution) {
	if n.of.revision == noServices {
		n.tried, n.metadata, n.how = true, &provider.Metadata{}, "none: it serves nothing"
		return
	}
	ctx, end := context.WithCancel(r.resolver.ctx)
	n.end = end
	r.resolver.workers.Go(func() {
		defer end()
		r.resolve(ctx, n)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.resolver.drop(n)
		if r.resolver.all[n.of] == n {
			delete(r.resolver.all, n.of)
		}
	})
}

// resolve finds out about a revision, until it is known for sure: by what names it, or says the same twice.
func (r *run) resolve(ctx context.Context, n *resolution) {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstTry), backoff.WithMaxInterval(lastTry),
		backoff.WithMaxElapsedTime(0))
	var before *provider.Metadata // that does not name the revision
	for first := true; ctx.Err() == nil; {
		m, how, skipped, err := r.find(ctx, n)
		if ctx.Err() != nil {
			return
		}
		switch {
		case before == nil:
		case err != nil: // what it said stays
			core.Sleep(ctx, r.resolver.again)
			continue
		case reflect.DeepEqual(*before, m):
			<-ctx.Done() // until nobody needs it
			return
		}
		var guess []string
		if err != nil {
			if r.unknown(n) {
				var unread error
				if guess, unread = r.resolver.mapping.interfacesOf(ctx, n.of.application, first, r.registry.Mapped); unread != nil {
					err = fmt.Errorf("%w; nor can the mapping be read: %w", err, unread)
				}
				first = false
			}
			r.counters.unresolved.Add(1)
		} else {
			r.counters.resolved.Add(1)
		}
		r.change(func(*state) {
			n.tried, n.how, n.err, n.warnings, n.guess = true, how, err, skipped, guess
			if n.excess = ""; err == nil {
				r.resolver.drop(n)
				if err = r.resolver.keep(n, &m); err != nil {
					n.excess, n.err = err.Error(), err
				}
			}
			if err != nil {
				n.failed++
			}
			for i := range n.users {
				r.apply(i)
			}
		})
		switch {
		case err != nil:
			core.Sleep(ctx, retry.NextBackOff())
		case m.Revision == "":
			before = &m
			core.Sleep(ctx, r.resolver.again)
		default:
			<-ctx.Done() // until nobody needs it
		}
	}
}

// maxMetadata is how many bytes the metadata of all revisions may take, which anybody can make up who may register: each is bounded by
// itself, and instances may name any number.
const maxMetadata = 256 << 20

// keep notes the metadata of a revision, unless all would be too much with it. The caller holds mu of run.
func (r *resolver) keep(n *resolution, m *provider.Metadata) error {
	size := m.Size()
	if r.kept+size > r.maxKept {
		return fmt.Errorf("application %s revision %s: with its %d bytes the metadata of all would be more than the %d that are taken",
			provider.Shorten(n.of.application), provider.Shorten(n.of.revision), size, r.maxKept)
	}
	r.kept += size
	n.metadata = m
	return nil
}

// drop notes that the metadata of a revision is not needed any more. The caller holds mu of run.
func (r *resolver) drop(n *resolution) {
	if n.metadata != nil {
		r.kept -= n.metadata.Size()
		n.metadata = nil
	}
}

// find looks for the metadata of a revision where it may be: in the metadata report, and with the instances themselves.
func (r *run) find(ctx context.Context, n *resolution) (m provider.Metadata, how string, skipped []string, err error) {
	if n.of.revision == "" {
		return m, "", nil, errors.New("its instances name no revision")
	}
	ctx, cancel := context.WithTimeout(ctx, perTry)
	defer cancel()
	content, err := r.registry.Metadata(ctx, n.of.application, n.of.revision)
	if err == nil {
		if m, skipped, err = provider.ParseMetadata(content); err == nil {
			m.Revision = n.of.revision // as its key says
			return m, "the metadata report", skipped, nil
		}
	}
	err = fmt.Errorf("metadata report: %w", err)
	if r.asker != nil && r.settings.asks() {
		m, how, unasked := askAny(ctx, r.asker, r.thatAnswer(n))
		if unasked == nil {
			return m, how, nil, nil
		}
		err = errors.Join(err, unasked)
	}
	return m, "", nil, err
}

// maxAsked is how many instances with a revision are asked for it at one try.
const maxAsked = 3

// thatAnswer returns some of the instances with a revision that say how they are asked.
func (r *run) thatAnswer(n *resolution) (some []provider.Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range n.users { // which come in another order each time
		if i.Service != nil && len(some) < maxAsked {
			some = append(some, i.Instance)
		}
	}
	return some
}

// unknown reports whether nothing is known of what some instance with a revision serves.
func (r *run) unknown(n *resolution) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range n.users {
		if len(n.guess) > 0 || !r.state.knows(i) {
			return true
		}
	}
	return false
}

// interfacesOf returns the interfaces that an application is said to serve, and why that could not be read anew. first says that it was not
// asked for the same revision before: of that something new may be said. Who asks while another one reads waits for that.
func (m *mappings) interfacesOf(ctx context.Context, application string, first bool,
	read func(context.Context) (map[string][]string, error),
) ([]string, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	}
	began := time.Now()
	if soon := began.Add(firstPause); first && m.due.After(soon) {
		m.due = soon
	}
	if first || m.pause == 0 {
		m.pause = firstPause
	}
	if !began.Before(m.due) {
		all, err := read(ctx)
		if err == nil {
			m.of = all
		}
		if m.err = err; errors.Is(err, registry.ErrAbsent) {
			m.err = nil
		}
		now := time.Now()
		m.due = now.Add(max(m.pause, mappingShare*now.Sub(began)))
		m.pause = min(2*m.pause, lastPause)
	}
	return slices.Clone(m.of[application]), m.err
}

// reason is why it is not known what instances with a revision serve; empty if it is.
func (n *resolution) reason() string {
	if n.err == nil {
		return ""
	}
	return strings.ReplaceAll(n.err.Error(), "\n", "; ")
}

// guesses says of what serves an interface that this is no more than a guess, and why: once for each revision, with the first of its
// interfaces.
func (s *state) guesses(iface string) (all []string) {
	for i := range s.served[iface] {
		n := i.needs
		if n == nil || n.metadata != nil || len(n.guess) == 0 || slices.ContainsFunc(i.providers,
			func(p provider.Provider) bool { return p.Interface < iface }) {
			continue
		}
		all = append(all, fmt.Sprintf("application %s revision %s: what it serves is taken from the interfaces mapped to it, without group and "+
			"version: %s",
			provider.Shorten(n.of.application), provider.Shorten(n.of.revision), n.reason()))
	}
	return all
}

// apply works out what an instance serves, from what is known of its revision. While that is nothing, what it served before stays, and what
// its interfaces say counts; if that is nothing too, it is what is said of its application. The caller holds mu.
func (r *run) apply(i *instance) {
	n := i.needs
	switch {
	case n.metadata != nil:
		r.state.serve(i, i.Providers(*n.metadata))
	case len(n.guess) > 0 && !r.state.knows(i):
		r.state.serve(i, i.Guess(n.guess))
	}
}

// knows reports whether anything is known that an instance serves.
func (s *state) knows(i *instance) bool {
	if len(i.providers) > 0 {
		return true
	}
	for at := range i.spots() {
		if s.called[at] > 0 {
			return true
		}
	}
	return false
}
