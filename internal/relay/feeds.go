package relay

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/aggregate"
	"tributary/config"
	"tributary/memstore"
	"tributary/server/mcp"
	"tributary/sources"
	"tributary/sources/lastgood"
	"tributary/sources/transform"
	"tributary/sources/vip"
)

// feeds are the sources in force and the stores that they feed. They are changed by one goroutine at a time.
type feeds struct {
	supervisor *sources.Supervisor
	view       *aggregate.View
	state      *lastgood.Dir // where what they publish is kept; nil for nowhere
	hops       *mcp.Hops     // through which instances what is read comes
	metrics    prometheus.Registerer
	vips       *vip.Table // nil for none
	all        []*feed    // in order of precedence
}

// feed is a source as it was configured, and its store.
type feed struct {
	config config.Source
	source sources.Source
	rules  *transform.Rules // or nil
	table  *memstore.Table
	memory *lastgood.Store // or nil
}

// spec is the feed as the supervisor takes it.
func (f *feed) spec() sources.Spec {
	return sources.Spec{
		Name: f.config.Name, Address: f.config.Address, Source: f.source, Table: f.table,
		Guard: f.config.Guard.Settings(), Memory: f.memory, Transform: f.rules,
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

// changes are the names of the sources that a new configuration adds, changes and removes.
type changes struct{ added, changed, removed []string }

// configure puts want in force, and says what it changed. Sources whose configuration stays are not disturbed; one that
// changes keeps its store, and what it held is served until it is read anew, which waits a moment for those that were added;
// what a removed one held is served until these are read. If a source cannot be made, all stays as it was.
func (f *feeds) configure(want []config.Source) (done changes, err error) {
	var next, added, changed []*feed
	for _, s := range want {
		old := f.find(s.Name)
		if old != nil && reflect.DeepEqual(old.config, s) {
			next = append(next, old)
			continue
		}
		source, err := newSource(s, f.hops, f.metrics, f.vips)
		if err != nil {
			return done, fmt.Errorf("source %s: %w", s.Name, err)
		}
		rules, err := s.Rules()
		if err != nil {
			return done, fmt.Errorf("source %s: %w", s.Name, err)
		}
		n := &feed{config: s, source: source, rules: rules, table: &memstore.Table{}}
		if old != nil {
			n.table, n.memory = old.table, old.memory
			changed, done.changed = append(changed, n), append(done.changed, s.Name)
		} else {
			if f.state != nil {
				n.memory = f.state.Source(s.Name)
			}
			added, done.added = append(added, n), append(done.added, s.Name)
		}
		next = append(next, n)
	}
	for _, n := range added {
		if err := f.supervisor.Add(n.spec()); err != nil {
			return done, err
		}
	}
	var inputs []aggregate.Source
	for _, n := range next {
		inputs = append(inputs, n.input())
	}
	old := f.all
	f.all = next
	f.view.SetSources(inputs...) // before any source is removed, so that what it holds can stay for as long as it must
	if len(changed) > 0 {
		f.awaitMerged(done.added) // which may have what a changed one no longer has
	}
	for _, n := range changed {
		if err := f.supervisor.Swap(n.spec()); err != nil {
			return done, err
		}
	}
	for _, o := range old {
		if f.find(o.config.Name) != nil {
			continue
		}
		done.removed = append(done.removed, o.config.Name)
		if err := f.supervisor.Remove(o.config.Name, sources.Keep); err != nil {
			return done, err
		}
	}
	return done, nil
}

// mergeWait is how long a source that changes waits for those that are new.
const mergeWait = 2 * time.Second

// awaitMerged waits until the view has what the sources called names have, but not for one that takes long to read.
func (f *feeds) awaitMerged(names []string) {
	unread := func(s aggregate.SourceStatus) bool { return slices.Contains(names, s.Name) && !s.Synced }
	missing := func() bool {
		all := f.view.Sources()
		return slices.ContainsFunc(all, unread) || slices.ContainsFunc(names, func(name string) bool {
			return !slices.ContainsFunc(all, func(s aggregate.SourceStatus) bool { return s.Name == name })
		})
	}
	for end := time.Now().Add(mergeWait); missing() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond) // the view tells of changes of what it shows, and that it read a source may be none
	}
}

func (f *feeds) find(name string) *feed {
	i := slices.IndexFunc(f.all, func(o *feed) bool { return o.config.Name == name })
	if i < 0 {
		return nil
	}
	return f.all[i]
}
