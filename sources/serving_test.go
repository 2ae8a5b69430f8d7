package sources

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// TestServingSaysWhy has objects served for other reasons than that the source has them, and is asked for the reasons.
func TestServingSaysWhy(t *testing.T) {
	odd := func(r *resource.Resource) (resource.Errors, error) {
		if r.Key().Name == "odd" {
			return resource.Errors{{Err: errors.New("breaks a rule")}}, nil
		}
		return nil, nil
	}
	within(t, Options{Validate: odd}, func(t *testing.T, supervisor *Supervisor) {
		_, sink := handed(t, supervisor)
		require.NoError(t, sink.ReplaceAll([]Content{
			{Group: "sub/in/a.yaml", Resources: objects(newObject("below", "1", ""))},
			{Group: "sub.yaml", Resources: objects(newObject("beside", "1", ""))},
			{Group: "l.yaml", Resources: objects(newObject("linked", "1", ""), newObject("odd", "1", ""))},
			{Group: "b.yaml", Resources: objects(newObject("moved", "1", ""))},
		}))
		sink.Synced()
		require.Error(t, sink.ReplaceAll([]Content{
			{Group: "b.yaml"}, {Group: "c.yaml", Renamable: true, Rejects: []Reject{{Err: errors.New("too broken to tell")}}},
		}))
		sink.(Doubter).Unread(map[string]string{"sub": "permission denied", "l.yaml": "a link that leads nowhere"})

		require.Equal(t, []Serving{{Source: "a", Unread: "permission denied"}}, supervisor.Serving(keyed("below")))
		require.Empty(t, supervisor.Serving(keyed("beside")))
		require.Empty(t, supervisor.Serving(keyed("nothing")))
		require.Equal(t, []Serving{{Source: "a", Unread: "a link that leads nowhere", Warnings: []string{"breaks a rule"}}},
			supervisor.Serving(keyed("odd")))
		moved := supervisor.Serving(keyed("moved"))
		require.Len(t, moved, 1)
		require.Equal(t, "too broken to tell", moved[0].Unsure[0].Reason)
		st := supervisor.Status()[0]
		require.Equal(t, []int{3, 1, 1}, []int{st.Unread, st.Unsure, len(st.Warnings)})

		sink.(UnconfirmedSink).Unconfirmed(map[string]string{"sub.yaml": "it lost its data"})
		require.Equal(t, []Serving{{Source: "a", Unconfirmed: "it lost its data"}}, supervisor.Serving(keyed("beside")))
		sink.(UnconfirmedSink).Unconfirmed(nil)
		require.Empty(t, supervisor.Serving(keyed("beside")))

		sink.(Doubter).Unread(nil)
		require.Empty(t, supervisor.Serving(keyed("below")))
		sink.Report(Health{State: Unreachable, Message: "rules does not exist"})
		require.Equal(t, "rules does not exist", supervisor.Serving(keyed("below"))[0].Unread)
		require.Equal(t, 5, supervisor.Status()[0].Unread)
	})
}

// TestServing_BeforeSourceIsRead restarts while the source cannot be read.
func TestServing_BeforeSourceIsRead(t *testing.T) {
	withDir(t, func(t *testing.T, dir string) {
		lifetime(t, dir, Options{}, whole(groups{"g": {newObject("x", "1", "g")}}))
		lifetime(t, dir, Options{}, run(unreachable), func(s *Supervisor, _ *memstore.Table) {
			require.Equal(t, "it has not been read since the restart: connection refused", s.Serving(keyed("x"))[0].Unread)
			require.Equal(t, 1, s.Status()[0].Unread)
		})
	})
}

// TestQuarantine_NamesServedVersion checks the texts of the log and of the list of quarantined objects.
func TestQuarantine_NamesServedVersion(t *testing.T) {
	var rs []*resource.Resource
	for i := range 13 {
		rs = append(rs, newObject(fmt.Sprintf("x%02d", i), "1", "a"))
	}
	bad := func(key resource.Key) Reject { return Reject{Key: key, Err: errors.New("bad")} }
	for want, content := range map[string]Content{
		"its last good version": {Rejects: []Reject{bad(keyed("x00"))}},
		"nothing":               {Rejects: []Reject{bad(keyed("other"))}},
		"the objects that it may be: ServiceEntry default/x03": {Rejects: []Reject{bad(resource.Key{
			Kind: "ServiceEntri", Namespace: "default",
			Name: "x03",
		})}},
		"the objects that it may be: ServiceEntry default/x12": {Rejects: []Reject{bad(resource.Key{})}, Resources: rs[:12]},
		"the objects that it may be: ServiceEntry default/x00, ServiceEntry default/x01, ServiceEntry default/x02, ServiceEntry default/x03, " +
			"ServiceEntry default/x04, ServiceEntry default/x05, ServiceEntry default/x06, ServiceEntry default/x07, " +
			"ServiceEntry default/x08, ServiceEntry default/x09 and 3 more": {Rejects: []Reject{bad(resource.Key{})}},
	} {
		ledger := emptyLedger()
		replaceGroup(ledger, 1, Content{Group: "a", Resources: rs})
		content.Group = "a"
		c := replaceGroup(ledger, 2, content)
		require.Equal(t, want, c.quarantined[0].Serves())
		require.Equal(t, want, ledger.quarantineList()[0].Serves())
	}
}

// TestQuarantine_FileWithoutReadableDocument has a file without a readable document: its kept objects are listed once.
func TestQuarantine_FileWithoutReadableDocument(t *testing.T) {
	used := func(n int) uint64 {
		ledger := emptyLedger()
		var resources []*resource.Resource
		var rejects []Reject
		for i := range n {
			resources = append(resources, newObject(fmt.Sprintf("name-%05d", i), "1", "a.yaml"))
			rejects = append(rejects, Reject{Origin: resource.Origin{Place: "a.yaml"}, Err: errors.New("a tab indents this line")})
		}
		replaceGroup(ledger, 1, Content{Group: "a.yaml", Resources: resources})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c := replaceGroup(ledger, 2, Content{Group: "a.yaml", Rejects: rejects})
		list := ledger.quarantineList()
		runtime.ReadMemStats(&after)
		require.Empty(t, c.Deletes)
		require.Equal(t, n, ledger.uncertainCount)
		require.Len(t, list, n)
		require.Equal(t, maxKeptNames, strings.Count(list[n-1].Serves(), "ServiceEntry"))
		return after.TotalAlloc - before.TotalAlloc
	}
	require.Less(t, used(4000), 32*used(250), "sixteen times as many documents")
}

// BenchmarkOneKeyInManyGroups has all groups have one object, and none of them a moment later.
func BenchmarkOneKeyInManyGroups(b *testing.B) {
	for _, n := range []int{10_000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var contents, empty []admitted
			for i := range n {
				g := fmt.Sprintf("g%06d", i)
				content := Content{
					Group: g, Resources: objects(newObject("x", "1", g)),
					Rejects: []Reject{{Key: keyed("y"), Err: errors.New("bad")}},
				}
				contents, empty = append(contents, admitted{Content: content}), append(empty, admitted{Content: Content{Group: g}})
			}
			for b.Loop() {
				l := emptyLedger()
				l.replace(contents, time.Time{})
				l.replace(empty, time.Time{})
			}
		})
	}
}
