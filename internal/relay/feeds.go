package relay

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/aggregate"
	"tributary/config"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/mcp"
	"tributary/sources"
	"tributary/sources/lastgood"
	"tributary/sources/transform"
	"tributary/sources/vip"
)

// parts are what feeds work with.
type parts struct {
	supervisor *sources.Supervisor
	view       *aggregate.View
	state      *lastgood.Dir // where what sources publish is kept; nil for nowhere
	hops       *mcp.Hops     // through which instances what is read comes
	metrics    prometheus.Registerer
	vips       *vip.Table // nil for none
	log        *slog.Logger
}

// feeds are the sources in force and the stores that they feed. They are changed by one goroutine at a time.
type feeds struct {
	parts
	switched chan switched // for sweep; holds the newest

	all []*feed // in order of the configuration

	mu    sync.Mutex
	inUse []string                   // the ids of all
	ended map[string]*lastgood.Store // by id, what was kept of sources that are no more, until nothing of them is served
}

// switched is a configuration that was put in force.
type switched struct {
	alone  <-chan struct{}   // tells that nothing of earlier sources is served
	before memstore.Snapshot // what was served until then
}

// feed is a source as it was configured, and its store. It never changes.
type feed struct {
	config config.Source
	made   string // its identity, by which it is known from one configuration to the next
	id     string // the same, told from other feeds of that identity
	source sources.Source
	rules  *transform.Rules // or nil
	table  *memstore.Table
	memory *lastgood.Store // or nil
	anew   bool            // it was added by a reload
}

func newFeeds(p parts) *feeds {
	return &feeds{parts: p, switched: make(chan switched, 1), ended: make(map[string]*lastgood.Store)}
}

// spec is the feed as the supervisor takes it.
func (f *feed) spec() sources.Spec {
	return sources.Spec{
		Name: f.config.Name, Address: f.config.Shown(), Source: f.source, Table: f.table,
		Guard: f.config.Guard.Settings(), Memory: f.memory, Transform: f.rules, Anew: f.anew,
		Lenient: f.config.Validation == config.ValidationWarn,
	}
}

// input is the feed as the view takes it.
func (f *feed) input() aggregate.Source {
	in := aggregate.Source{Name: f.config.Name, Reader: f.table, Precedence: f.config.Precedence}
	if e := f.config.Merge.Endpoints; e != nil {
		in.Merge = &aggregate.Merge{Locality: e.Locality, Priority: e.Priority}
	}
	return in
}

// configure puts want in force as a whole and says what it changed, or leaves all as it is. A source whose configuration stays
// is not disturbed. One that is made of the same, under another name or with other settings of reading, goes on with all that it
// has. All others begin with nothing, and for as long as they have not been read, the view leaves what they may have as it was.
func (f *feeds) configure(want []config.Source) (changes, error) {
	next, err := f.prepare(want)
	if err != nil {
		return changes{}, err
	}
	specs, inputs := make([]sources.Spec, len(next)), make([]aggregate.Source, len(next))
	for i, n := range next {
		specs[i], inputs[i] = n.spec(), n.input()
	}
	if err := f.supervisor.Reconfigure(specs); err != nil {
		return changes{}, err
	}
	now := switched{before: f.view.Snapshot()}
	now.alone = f.view.SetSources(inputs...)
	done := changesOf(f.all, next)
	f.replace(next)
	select {
	case older := <-f.switched:
		now.before = older.before
	default:
	}
	f.switched <- now
	return done, nil
}

// prepare makes the feeds of want. It is all of a reload that can fail, and changes nothing.
func (f *feeds) prepare(want []config.Source) ([]*feed, error) {
	from := f.match(want)
	var taken []string
	for _, old := range from {
		if old != nil {
			taken = append(taken, old.id)
		}
	}
	kept, err := f.kept()
	if err != nil {
		return nil, err
	}
	next := make([]*feed, len(want))
	for i, s := range want {
		old := from[i]
		if old == nil {
			old = &feed{made: s.Identity(), table: new(memstore.Table), anew: f.all != nil}
			old.id = free(old.made, taken, kept)
			taken = append(taken, old.id)
			if f.state != nil {
				old.memory = f.state.Source(old.id)
			}
		}
		n := *old
		n.config = s
		if !readsAlike(old.config, s) {
			var err error
			if n.source, err = newSource(s, f.hops, f.metrics, f.vips); err != nil {
				return nil, fmt.Errorf("source %s: %w", s.Name, err)
			}
			if n.rules, err = s.Rules(); err != nil {
				return nil, fmt.Errorf("source %s: %w", s.Name, err)
			}
		}
		next[i] = &n
	}
	return next, nil
}

// match returns for each of want the feed that goes on as that: one of the same identity, and the same name if there is one.
func (f *feeds) match(want []config.Source) []*feed {
	left := slices.Clone(f.all)
	from := make([]*feed, len(want))
	for _, named := range []bool{true, false} {
		for i, s := range want {
			j := slices.IndexFunc(left, func(o *feed) bool {
				return o.made == s.Identity() && (!named || o.config.Name == s.Name)
			})
			if from[i] == nil && j >= 0 {
				from[i] = left[j]
				left = slices.Delete(left, j, j+1)
			}
		}
	}
	return from
}

// kept returns the ids of which an earlier run has left something, the newest first. A source that is added to a running one
// has no claim to that.
func (f *feeds) kept() ([]string, error) {
	if f.state == nil || f.all != nil {
		return nil, nil
	}
	return f.state.Kept()
}

// free returns an id of an identity that is not taken: one of which something is kept, or else the first. Of several sources of one identity any may
// be the one that is left, so what is kept is not always that of the first.
func free(made string, taken, kept []string) string {
	numbered := func(n int) string {
		if n == 1 {
			return made
		}
		return fmt.Sprintf("%s-%d", made, n)
	}
	for _, id := range kept {
		n, err := strconv.Atoi(strings.TrimPrefix(id, made+"-"))
		if id == made || err == nil && id == numbered(n) {
			if !slices.Contains(taken, id) {
				return id
			}
		}
	}
	n := 1
	for slices.Contains(taken, numbered(n)) {
		n++
	}
	return numbered(n)
}

// readsAlike reports whether the source that reads as one configuration says also reads as the other does.
func readsAlike(a, b config.Source) bool {
	for _, s := range []*config.Source{&a, &b} {
		s.Precedence, s.Guard, s.Merge = 0, config.Guard{}, config.Merge{}
	}
	return reflect.DeepEqual(a, b)
}

// replace makes the feeds next, and notes what is kept of those that are no more.
func (f *feeds) replace(next []*feed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.all {
		if o.memory != nil {
			f.ended[o.id] = o.memory
		}
	}
	f.all, f.inUse = next, nil
	for _, n := range next {
		f.inUse = append(f.inUse, n.id)
		delete(f.ended, n.id)
	}
}

// leftover is how long something is kept that no source has a claim to, in case that the configuration was the wrong one.
const leftover = 7 * 24 * time.Hour

// sweep has what is kept of former sources forgotten once nothing of them is served, until ctx ends.
func (f *feeds) sweep(ctx context.Context) error {
	var now switched
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-f.switched:
			if now.alone != nil {
				next.before = now.before
			}
			now = next
		case <-now.alone:
			f.tell(now.before)
			now = switched{}
			f.forget()
		}
	}
}

// tell logs what has gone by a reload. The deletion guard has no say in that: who edits the configuration means it. But a source
// that was left out, or an address that was mistyped and has nothing, is seen here.
func (f *feeds) tell(before memstore.Snapshot) {
	gone, from := make(map[resource.Kind]int), make(map[string]bool)
	all := 0
	for c := range memstore.Diff(before, f.view.Snapshot()) {
		if c.New == nil {
			all++
			gone[c.Old.Key().Kind]++
			from[c.Old.Origin().Source] = true
		}
	}
	if all > 0 {
		f.log.Warn("the reload has taken away what no source of the new configuration has",
			"objects", all, "kinds", fmt.Sprint(gone), "of_sources", strings.Join(slices.Sorted(maps.Keys(from)), ", "))
	}
}

// forget removes what is kept of former sources.
func (f *feeds) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, memory := range f.ended {
		if err := memory.Forget(); err != nil {
			f.log.Warn("what is kept of a source that is no more cannot be removed", "err", err)
			continue // next time
		}
		delete(f.ended, id)
	}
	if f.state != nil {
		if err := f.state.Unused(f.inUse, time.Now().Add(-leftover)); err != nil {
			f.log.Warn("what nothing needs any more cannot be removed", "err", err)
		}
	}
}
