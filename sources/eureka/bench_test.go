package eureka

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/eureka/client"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
)

// still is a server on which nothing changes.
type still struct{ all, changes *client.Reply }

func (s still) Servers() []string { return []string{"a"} }

func (s still) All(context.Context, string) (*client.Reply, error) { return s.all, nil }

func (s still) Changes(context.Context, string) (*client.Reply, error) { return s.changes, nil }

func (s still) One(context.Context, string, wire.Key) (*client.Reply, error) {
	return &client.Reply{Answer: &wire.Answer{}}, nil
}

// many is a server with n instances of orders, ten each of as many services.
func many(n int) still {
	a := &wire.Answer{Version: 1, Hash: fmt.Sprintf("UP_%d_", n)}
	for i := range n {
		one := up(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))[0]
		one.ID, one.Registered = fmt.Sprintf("instance-%d.example.com:orders:%d", i, i), int64(1_700_000_000_000+i)
		one.App, one.VIP = fmt.Sprintf("ORDERS-%d", i/10), fmt.Sprintf("orders-%d", i/10)
		a.Instances = append(a.Instances, one)
	}
	return still{&client.Reply{Answer: a}, &client.Reply{
		Answer: &wire.Answer{Version: 2, Hash: a.Hash},
		Sum:    sha256.Sum256([]byte("changes")),
	}}
}

// begun is a run that has read everything.
func begun(tb testing.TB, server still) (*run, *shelf) {
	m, err := mapping.New(mapping.Options{}, nil)
	require.NoError(tb, err)
	settings := Settings{}
	require.NoError(tb, settings.complete())
	s := &shelf{groups: map[string]sources.Content{}}
	r := &run{Source: &Source{settings: settings, mapper: m, counts: newCounts()}, sink: s, state: newState(m, settings)}
	r.follower = newFollower(server, r.counts, settings.Interval, view.Marks{})
	r.turn(tb.Context())
	require.Len(tb, s.groups, len(server.all.Instances)/10)
	return r, s
}

// TestNothingIsKeptWhileNothingChanges shows that a turn in which nothing is new does not so much as look at what there is to keep.
func TestNothingIsKeptWhileNothingChanges(t *testing.T) {
	r, s := begun(t, many(100))
	require.Equal(t, 1, s.notes)
	version := r.state.version
	r.kept = nil // what would have it keep the same again
	for range 3 {
		r.turn(t.Context())
	}
	require.Equal(t, version, r.state.version)
	require.Equal(t, 1, s.notes)
}

// BenchmarkTurn is what a turn costs without what the network and its answer cost: with nothing new, and with one instance that is.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{1000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("nothing/%d", n), func(b *testing.B) {
			r, _ := begun(b, many(n))
			for b.Loop() {
				r.turn(b.Context())
			}
		})
		b.Run(fmt.Sprintf("one/%d", n), func(b *testing.B) {
			server := many(n)
			r, _ := begun(b, server)
			one := server.all.Instances[0]
			for i := 0; b.Loop(); i++ {
				one.Updated, one.Action, one.Metadata = int64(i+1), "MODIFIED", map[string]string{"version": fmt.Sprint(i)}
				// A reply is not modified once it was handed out.
				r.follower.asker = still{server.all, &client.Reply{
					Answer: &wire.Answer{Version: int64(i + 3), Hash: server.all.Hash, Instances: []wire.Instance{one}},
					Sum:    sha256.Sum256(fmt.Append(nil, i)),
				}}
				r.turn(b.Context())
			}
		})
	}
}
