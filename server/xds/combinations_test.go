package xds

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"tributary/internal/xdstest"
	"tributary/server/xds/wire"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// Combinations of rules of the protocol.

// together makes changes while the only stream does not look.
func (f *fixture) together(change func()) {
	st := f.onlyStream()
	st.mu.Lock()
	defer st.mu.Unlock()
	change()
}

func TestWildcardAfterNames_SendsRemovals(t *testing.T) {
	fixture := newFixture(t)
	fixture.set(testType, "a", "b", "c")
	client := fixture.delta()
	client.Subscribe(testType, []string{"a", "b"}, "a@1", "b@1")
	fixture.together(func() {
		fixture.set(testType, "-a")
		st := fixture.onlyStream()
		st.apply(st.types[testType], &wire.Request{Delta: true, TypeURL: testType, Subscribe: []string{"*"}}, false, time.Now())
		st.wakeup.notify()
	})
	client.ExpectAck(testType, nil, "-a", "b@1", "c@1")
	client.Silence()
}

func TestNack_RecordedForAnyChunk(t *testing.T) {
	fixture := newFixture(t)
	var commit Commit
	for i := range 60 {
		commit.Put = append(commit.Put, padded(t, fmt.Sprintf("n%04d", i), "1", strings.Repeat("x", 100<<10)))
	}
	fixture.coll(testType).Apply(commit)
	fixture.coll(testType).MarkSynced()
	client := fixture.delta()
	client.Ask(testType)
	var chunks []xdstest.Answer
	for len(chunks) == 0 || chunks[len(chunks)-1].Version == "" {
		chunks = append(chunks, client.Next())
	}
	require.Greater(t, len(chunks), 2)
	client.Nack(chunks[0], "cannot digest the first")
	for _, chunk := range chunks[1:] {
		client.Ack(chunk)
	}
	status := func() TypeStatus { return fixture.server.Clients()[0].Types[0] }
	eventually(t, func() bool { return status().AckedNonce == chunks[len(chunks)-1].Nonce })
	require.Equal(t, "cannot digest the first", status().NackError)
	require.Equal(t, chunks[0].Nonce, status().NackNonce)
	require.EqualValues(t, 1, status().Nacks)
	require.False(t, status().Synced)
	require.Len(t, status().Rejected, len(chunks[0].Puts), "entries of the first chunk")
	var next []string
	for _, r := range status().Rejected {
		next = append(next, r.Name+"@2")
	}
	fixture.set(testType, next...)
	client.ExpectAck(testType, nil, next...)
	eventually(t, func() bool { return status().Synced })
}

func TestDebounce(t *testing.T) {
	w := newFixture(t)
	w.colls[testType] = NewCollection(TypeOf(testType), Debounce{Quiet: 20 * time.Millisecond, Max: 60 * time.Millisecond})
	w.set(testType, "a")
	client := w.delta()
	client.Subscribe(testType, nil, "a@1")
	const commits = 100
	for i := range commits {
		w.set(testType, fmt.Sprintf("a@%d", i+2))
		time.Sleep(time.Millisecond) // the test is about continuous commits
	}
	responses := 0
	for a := (xdstest.Answer{}); !slices.Contains(a.Puts, fmt.Sprintf("a@%d", commits+1)); responses++ {
		a = client.Next()
		client.Ack(a)
	}
	require.Greater(t, responses, 1, "the longest delay counts")
	require.Less(t, responses, commits/4)
	client.Silence()
}

// nilCatalog breaks its contract.
type nilCatalog struct{}

func (nilCatalog) Collection(context.Context, *corev3.Node, string) (*Collection, func(), error) {
	return nil, nil, nil
}

func TestCatalogWithoutCollection_EndsStream(t *testing.T) {
	w := newFixture(t)
	w.server.catalog = nilCatalog{}
	c := w.sotw()
	c.Ask(testType)
	require.Equal(t, codes.Internal, grpcstatus.Code(c.Ended()))
}

// swap replaces cluster old by new in one commit: the route, the cluster, its endpoints.
func (f *fixture) swap(t *testing.T, old, new string, n int) {
	put := func(name, version string) *Commit { return &Commit{Put: []*Entry{padded(t, name, version, "")}} }
	clusters := put(new, "1")
	clusters.Remove = []string{old}
	endpoints := put(new, "1")
	endpoints.Remove = []string{old}
	f.group.Apply(map[*Collection]*Commit{
		f.coll(ClusterURL): clusters, f.coll(EndpointURL): endpoints, f.coll(RouteURL): put("route", fmt.Sprint(n)),
	})
}

// A client that asks for routes gets those that match the clusters that it was sent, although the collections have changed since.
func TestSequentialTypes_UseOneSnapshot(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func() *xdstest.Client) {
		w.set(ClusterURL, "c0")
		w.set(EndpointURL, "c0")
		w.set(RouteURL, "route@0")
		c := dial()
		c.Subscribe(ClusterURL, []string{"*"}, "c0@1")
		w.together(func() {
			w.swap(t, "c0", "c1", 1)
			request := &wire.Request{Delta: c.Delta, TypeURL: RouteURL}
			if c.Delta {
				request.Subscribe = []string{"route"}
			} else {
				request.Names = []string{"route"}
			}
			st := w.onlyStream()
			st.mu.Unlock()
			require.NoError(t, st.handle(request, time.Now()))
			st.mu.Lock()
		})
		require.Equal(t, ClusterURL, c.Next().TypeURL, "before the route that leads to it")
	})
}

func TestRepeatedRejection_LoggedOnce(t *testing.T) {
	var buffer bytes.Buffer
	fixture := newFixture(t, Options{Log: slog.New(slog.NewTextHandler(&buffer, nil))})
	fixture.set(testType, "a")
	client := fixture.sotw()
	client.Ask(testType)
	a := client.Next()
	for i := range 2 * noopsBurst {
		client.Request(testType, strings.Repeat("0", i%2)+a.Nonce, &status.Status{Message: "no"})
	}
	eventually(t, func() bool { return fixture.server.Clients()[0].Types[0].Nacks >= noopsBurst })
	fixture.server.Drain(context.Background(), 0)
	_ = client.Ended()
	fixture.server.receivers.Wait()
	require.Equal(t, 1, strings.Count(buffer.String(), "client rejected"))
}
