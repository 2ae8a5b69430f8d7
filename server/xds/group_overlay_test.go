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
		group := NewGroup(Debounce{Quiet: time.Hour})
		base, routes := group.Collection(TypeOf(ClusterURL)), group.Collection(TypeOf(RouteURL))
		models := map[*Collection]map[string]string{base: {}}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				models[group.Overlay(base)] = make(map[string]string)
			case 1:
				base.MarkSynced()
				routes.MarkSynced()
			case 2:
				for c := range models {
					if c != base && len(models) > 3 {
						group.Drop(c)
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
				for collection, m := range models {
					if rapid.Bool().Draw(t, "commit") {
						continue
					}
					commits[collection] = &Commit{Revision: 7, Since: time.Now()}
					for i := range 10 {
						switch name, v := fmt.Sprint("n", i), rapid.IntRange(0, 5).Draw(t, "version"); v {
						case 0:
							commits[collection].Remove = append(commits[collection].Remove, name)
							delete(m, name)
						case 1, 2:
							commits[collection].Put = append(commits[collection].Put, named(name, fmt.Sprint(v)))
							m[name] = fmt.Sprint(v)
						}
					}
				}
				group.Apply(commits)
			}
			if rapid.Bool().Draw(t, "flush") {
				group.Flush()
			}
			for collection, overlayEntries := range models {
				want := maps.Clone(models[base])
				maps.Copy(want, overlayEntries)
				now := collection.current.Load()
				require.Equal(t, want, contents(t, now))
				require.Equal(t, base.Synced(), collection.Synced())
				if len(group.hidden) == 0 && collection.Synced() {
					require.Same(t, now, collection.shown.Load())
					require.Same(t, now, (*group.shown.Load())[collection])
				}
			}
			if len(group.hidden) == 0 && base.Synced() && routes.Synced() {
				require.Len(t, *group.shown.Load(), len(models)+1, "the snapshot has no dropped overlays")
			}
		}
	})
}

// A client that moves to another overlay of a group takes one cut of all types: a cluster goes after the routes to it.
func TestOverlayMove_FollowsDependencyOrder(t *testing.T) {
	groupsFixture := newGroupsFixture(t)
	group := NewGroup(Debounce{})
	base, routes := group.Collection(TypeOf(ClusterURL)), group.Collection(TypeOf(RouteURL))
	base.MarkSynced()
	routes.MarkSynced()
	for i := range 2 {
		groupsFixture.groups[i] = map[string]*Collection{ClusterURL: group.Overlay(base), RouteURL: routes, "base": base}
	}
	groupsFixture.put(0, "base", "c")
	groupsFixture.put(0, RouteURL, "r")
	groupsFixture.put(0, ClusterURL, "own")
	groupsFixture.put(1, ClusterURL, "own@2")
	client := groupsFixture.delta()
	client.Subscribe(ClusterURL, nil, "c@1", "own@1")
	client.Ask(RouteURL)
	unanswered := client.Expect(RouteURL, "r@1")
	groupsFixture.put(0, RouteURL, "r@2") // waits for the answer, and the next cut for it
	eventually(t, func() bool {
		st := groupsFixture.server.streamList()[0]
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.types[RouteURL].goal == routes.shown.Load()
	})
	group.Apply(map[*Collection]*Commit{
		base:   {Remove: []string{"c"}},
		routes: {Put: []*Entry{thing(t, "r@3")}},
	})
	groupsFixture.move(1)
	eventually(t, func() bool {
		group.mu.Lock()
		defer group.mu.Unlock()
		return len(groupsFixture.groups[0][ClusterURL].wakeups) == 0
	})
	client.Ack(unanswered)
	client.ExpectAck(ClusterURL, nil, "own@2")
	client.ExpectAck(RouteURL, nil, "r@3")
	client.ExpectAck(ClusterURL, nil, "-c")
}

func named(name, version string) *Entry { return &Entry{Name: name, Version: version} }
