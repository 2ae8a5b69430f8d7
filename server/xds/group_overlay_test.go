package xds

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// After a random history of commits, an overlay has its own entries and those entries of its base that it does not
// override, and becomes visible together with the base.
func TestOverlaysAgreeWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewGroup(Debounce{Quiet: time.Hour})
		base, routes := g.Collection(TypeOf(ClusterURL)), g.Collection(TypeOf(RouteURL))
		models := map[*Collection]map[string]string{base: {}}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				models[g.Overlay(base)] = make(map[string]string)
			case 1:
				base.MarkSynced()
				routes.MarkSynced()
			case 2:
				for c := range models {
					if c != base && len(models) > 3 {
						g.Drop(c)
						delete(models, c)
					}
				}
			case 3:
				before := make(map[*Collection]*state)
				for c := range models {
					before[c] = c.current.Load()
				}
				routes.Apply(Commit{Put: []*Entry{named("r", fmt.Sprint(len(models)))}})
				for c := range models {
					require.Same(t, before[c], c.current.Load())
				}
			default:
				commits := make(map[*Collection]*Commit)
				for c, m := range models {
					if rapid.Bool().Draw(t, "commit") {
						continue
					}
					commits[c] = &Commit{Revision: 7, Since: time.Now()}
					for i := range 10 {
						switch name, v := fmt.Sprint("n", i), rapid.IntRange(0, 5).Draw(t, "version"); v {
						case 0:
							commits[c].Remove = append(commits[c].Remove, name)
							delete(m, name)
						case 1, 2:
							commits[c].Put = append(commits[c].Put, named(name, fmt.Sprint(v)))
							m[name] = fmt.Sprint(v)
						}
					}
				}
				g.Apply(commits)
			}
			if rapid.Bool().Draw(t, "flush") {
				g.Flush()
			}
			for c, overlayEntries := range models {
				want := maps.Clone(models[base])
				maps.Copy(want, overlayEntries)
				now := c.current.Load()
				require.Equal(t, want, contents(t, now))
				require.Equal(t, base.Synced(), c.Synced())
				if len(g.hidden) == 0 && c.Synced() {
					require.Same(t, now, c.shown.Load())
					require.Same(t, now, (*g.shown.Load())[c])
				}
			}
			if len(g.hidden) == 0 && base.Synced() && routes.Synced() {
				require.Len(t, *g.shown.Load(), len(models)+1, "the snapshot has no dropped overlays")
			}
		}
	})
}

// A client that moves to another overlay of a group takes one cut of all types: a cluster goes after the routes to it.
func TestOverlayMove_FollowsDependencyOrder(t *testing.T) {
	ws := newGroupsFixture(t)
	g := NewGroup(Debounce{})
	base, routes := g.Collection(TypeOf(ClusterURL)), g.Collection(TypeOf(RouteURL))
	base.MarkSynced()
	routes.MarkSynced()
	for i := range 2 {
		ws.groups[i] = map[string]*Collection{ClusterURL: g.Overlay(base), RouteURL: routes, "base": base}
	}
	ws.put(0, "base", "c")
	ws.put(0, RouteURL, "r")
	ws.put(0, ClusterURL, "own")
	ws.put(1, ClusterURL, "own@2")
	c := ws.delta("")
	c.ask(ClusterURL)
	c.expectAck(ClusterURL, nil, "c@1", "own@1")
	c.ask(RouteURL)
	unanswered := c.expect(RouteURL, "r@1")
	ws.put(0, RouteURL, "r@2") // waits for the answer, and the next cut for it
	eventually(t, func() bool {
		st := ws.server.streamList()[0]
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.types[RouteURL].goal == routes.shown.Load()
	})
	g.Apply(map[*Collection]*Commit{
		base:   {Remove: []string{"c"}},
		routes: {Put: []*Entry{thing(t, "r", "3", "")}},
	})
	ws.move(1)
	eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(ws.groups[0][ClusterURL].wakeups) == 0
	})
	c.ack(unanswered)
	c.expectAck(ClusterURL, nil, "own@2")
	c.expectAck(RouteURL, nil, "r@3")
	c.expectAck(ClusterURL, nil, "-c")
}

func named(name, version string) *Entry { return &Entry{Name: name, Version: version} }
