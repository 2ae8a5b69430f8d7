package xds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"tributary/internal/xdstest"
)

// groupsFixture is a catalog that shows clients one of several groups of collections.
type groupsFixture struct {
	*fixture
	groups []map[string]*Collection
	group  atomic.Int64 // negative for none
	held   atomic.Int64 // collections in use
}

func newGroupsFixture(t *testing.T, types ...string) *groupsFixture {
	ws := &groupsFixture{}
	ws.fixture = newFixture(t)
	ws.server.catalog = ws
	for range 2 {
		g, colls := NewGroup(Debounce{}), make(map[string]*Collection)
		for _, url := range types {
			colls[url] = g.Collection(TypeOf(url))
			colls[url].MarkSynced()
		}
		ws.groups = append(ws.groups, colls)
	}
	return ws
}

func (ws *groupsFixture) Collection(_ context.Context, _ *corev3.Node, typeURL string) (*Collection, func(), error) {
	group := ws.group.Load()
	if group < 0 {
		return nil, nil, grpcstatus.Error(codes.ResourceExhausted, "too many")
	}
	ws.held.Add(1)
	return ws.groups[group][typeURL], sync.OnceFunc(func() { ws.held.Add(-1) }), nil
}

// put commits things, each as name@version or -name, to a collection of a group.
func (ws *groupsFixture) put(group int, typeURL string, items ...string) {
	elsewhere := &fixture{t: ws.t, colls: ws.groups[group]}
	elsewhere.set(typeURL, items...)
}

func (ws *groupsFixture) move(to int64) {
	ws.group.Store(to)
	ws.server.Review()
}

// Whatever happens meanwhile, clients end up with the catalog's last choice, and all other collections are released.
func TestReview_DuringConnectsAndAnswers(t *testing.T) {
	groupsFixture := newGroupsFixture(t, testType)
	random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // it is a test
	names := []string{"a", "b", "c", "d"}
	change := func() {
		var items []string
		for _, n := range names {
			if random.IntN(3) == 0 {
				items = append(items, "-"+n)
			} else {
				items = append(items, fmt.Sprint(n, "@", random.IntN(9)))
			}
		}
		groupsFixture.put(random.IntN(2), testType, items...)
	}
	var clients []*follower
	for i := range 30 {
		change()
		groupsFixture.group.Store(int64(i % 2))
		var reviews sync.WaitGroup
		reviews.Go(groupsFixture.server.Review)
		clients = append(clients, follow(t, groupsFixture.delta(), i%3 == 0))
		change()
		reviews.Wait()
	}
	groupsFixture.put(1, testType, "a@10", "b@10", "-c", "d@10")
	groupsFixture.move(1)
	for _, c := range clients {
		eventually(t, func() bool { return slices.Equal(c.held(), []string{"a@10", "b@10", "d@10"}) })
	}
	require.EqualValues(t, len(clients), groupsFixture.held.Load())
}

// follower is a client that takes all, or rejects some.
type follower struct {
	mu        sync.Mutex
	resources map[string]string
}

func follow(t *testing.T, c *xdstest.Client, picky bool) *follower {
	f := &follower{resources: make(map[string]string)}
	c.Ask(testType)
	go func() {
		for n := 0; ; n++ {
			var a xdstest.Answer
			select {
			case a = <-c.Answers:
			case <-t.Context().Done():
				return
			}
			f.mu.Lock()
			for _, p := range a.Puts {
				f.resources[p[:1]] = p
			}
			for _, name := range a.Removed {
				delete(f.resources, name)
			}
			f.mu.Unlock()
			if picky && n%2 == 0 {
				c.Nack(a, "no")
			} else {
				c.Ack(a)
			}
		}
	}()
	return f
}

func (f *follower) held() (resources []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.resources {
		resources = append(resources, v)
	}
	slices.Sort(resources)
	return resources
}

// reviewersFixture is a groupsFixture whose catalog records the reviewers.
type reviewersFixture struct {
	*groupsFixture
	reviewers sync.Map // Reviewer → true
}

func (ws *reviewersFixture) Collection(ctx context.Context, node *corev3.Node, typeURL string) (*Collection, func(), error) {
	ws.reviewers.Store(ReviewerOf(ctx), true)
	return ws.groupsFixture.Collection(ctx, node, typeURL)
}

// A catalog can have one client ask again, and the others stay where they are.
func TestReviewer_ReviewsOneClient(t *testing.T) {
	ws := &reviewersFixture{groupsFixture: newGroupsFixture(t, testType)}
	ws.server.catalog = ws
	ws.put(0, testType, "a")
	ws.put(1, testType, "b")
	first := ws.delta()
	first.Subscribe(testType, nil, "a@1")
	var firstReviewer Reviewer
	ws.reviewers.Range(func(reviewer, _ any) bool { firstReviewer = reviewer.(Reviewer); return true })
	second := ws.sotw()
	second.Subscribe(testType, nil, "a@1")
	ws.group.Store(1)
	firstReviewer.Review()
	first.ExpectAck(testType, nil, "b@1", "-a")
	second.Silence()
	ws.server.Review()
	second.ExpectAck(testType, nil, "b@1")
	first.Silence()
	n := 0
	ws.reviewers.Range(func(_, _ any) bool { n++; return true })
	require.Equal(t, 2, n, "a stream is one reviewer, however often it asks")
	require.Nil(t, ReviewerOf(t.Context()))
}

// slowFixture is a groupsFixture; its catalog blocks in a review.
type slowFixture struct {
	*groupsFixture
	gate atomic.Pointer[chan struct{}] // closed when it answers; nil if it does at once
	asks atomic.Int64                  // streams that wait
}

func (ws *slowFixture) Collection(ctx context.Context, node *corev3.Node, typeURL string) (*Collection, func(), error) {
	if gate := ws.gate.Load(); gate != nil {
		ws.asks.Add(1)
		defer ws.asks.Add(-1)
		select {
		case <-*gate:
		case <-ctx.Done():
			return nil, nil, grpcstatus.FromContextError(ctx.Err()).Err()
		}
	}
	return ws.groupsFixture.Collection(ctx, node, typeURL)
}

// Review does not wait for the catalog. Commits to a client's old collection meanwhile are never sent to it: it moves
// from the state that it had.
func TestReview_DoesNotWaitForCatalog(t *testing.T) {
	ws := &slowFixture{groupsFixture: newGroupsFixture(t, testType)}
	ws.server.catalog = ws
	ws.put(0, testType, "a", "b")
	ws.put(1, testType, "a", "b")
	var clients []*xdstest.Client
	for range 10 {
		c := ws.delta()
		c.Subscribe(testType, nil, "a@1", "b@1")
		clients = append(clients, c)
	}
	gate := make(chan struct{})
	ws.gate.Store(&gate)
	ws.move(1)
	ws.put(0, testType, "a@secret", "-b")
	eventually(t, func() bool { return ws.asks.Load() == int64(len(clients)) })
	ws.move(1) // one more while they wait
	for _, c := range clients {
		c.Silence()
	}
	for _, c := range ws.server.Clients() {
		require.False(t, c.Types[0].Synced)
	}
	ws.put(1, testType, "c")
	close(gate)
	for _, c := range clients {
		c.ExpectAck(testType, nil, "c@1")
	}
	eventually(t, func() bool { return ws.held.Load() == int64(len(clients)) })
}

// A stream that waits for the catalog ends when its client disconnects, and releases its collection.
func TestReview_EndsWithClient(t *testing.T) {
	ws := &slowFixture{groupsFixture: newGroupsFixture(t, testType)}
	ws.server.catalog = ws
	ws.put(0, testType, "a")
	client := ws.delta()
	client.Subscribe(testType, nil, "a@1")
	gate := make(chan struct{})
	ws.gate.Store(&gate)
	ws.move(1)
	eventually(t, func() bool { return ws.asks.Load() == 1 })
	client.Close()
	eventually(t, func() bool { return ws.asks.Load() == 0 && ws.held.Load() == 0 && ws.server.Streams() == 0 })
}

// While a drain goes on, Review reaches the streams that it has not ended yet.
func TestReview_ReachesStreamsDuringDrain(t *testing.T) {
	ws := newGroupsFixture(t, testType)
	ws.put(0, testType, "a")
	ws.put(1, testType, "b")
	first := ws.delta()
	first.Subscribe(testType, nil, "a@1")
	firstID := ws.server.Clients()[0].StreamID
	last := ws.delta()
	last.Subscribe(testType, nil, "a@1")
	ctx, stop := context.WithCancel(t.Context())
	var drain sync.WaitGroup
	drain.Go(func() { ws.server.Drain(ctx, time.Hour) })
	eventually(t, func() bool { return ws.server.Streams() == 1 })
	if ws.server.Clients()[0].StreamID == firstID {
		last = first
	}
	ws.move(1)
	last.ExpectAck(testType, nil, "-a", "b@1")
	stop()
	drain.Wait()
	require.Zero(t, ws.server.Streams())
}
