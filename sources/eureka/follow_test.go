package eureka

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/eureka/client"
	"tributary/sources/eureka/eurekatest"
	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
)

// cluster are servers, and one who follows them, the first most gladly.
type cluster struct {
	t *testing.T
	*follower
	servers []*eurekatest.Server
	state   *state
}

func newCluster(t *testing.T, n int) *cluster {
	c := &cluster{t: t}
	address := "eureka://"
	for i := range n {
		s := eurekatest.Start(t)
		c.servers = append(c.servers, s)
		if i > 0 {
			address += ","
		}
		address += s.Host()
	}
	a, err := client.ParseAddress(address)
	require.NoError(t, err)
	asker := client.New(a, "", nil)
	t.Cleanup(asker.Close)
	c.follower = newFollower(asker, newCounts(), 0, view.Marks{})
	c.patience = 10 * time.Second
	return c
}

func (c *cluster) put(id string, servers ...*eurekatest.Server) {
	for _, s := range servers {
		s.Put("orders", eurekatest.Instance(id, "10.0.0.1", 80, nil))
	}
}

func (c *cluster) delete(id string, servers ...*eurekatest.Server) {
	for _, s := range servers {
		s.Delete("orders", id)
	}
}

// read asks, and returns what there is in short: what is listed, and what is known of it.
func (c *cluster) read(all bool) string {
	c.t.Helper()
	r, err := c.next(c.t.Context(), all)
	require.NoError(c.t, err)
	text := ""
	for _, i := range r.view.Instances() {
		text += i.ID
	}
	for _, is := range []struct {
		what string
		is   bool
	}{{" same", r.same}, {" outage", r.outage}, {" unchanged", r.unchanged}, {" part", !r.view.Whole()}} {
		if is.is {
			text += is.what
		}
	}
	if len(r.deleted) > 0 {
		text += fmt.Sprintf(" -%s", r.deleted[0].ID)
	}
	return text
}

func TestFollowsChanges(t *testing.T) {
	c := newCluster(t, 1)
	s := c.servers[0]
	c.put("a", s)
	require.Equal(t, "a outage", c.read(true))
	require.Equal(t, "a same unchanged", c.read(false))
	c.put("b", s)
	require.Equal(t, "ab same", c.read(false))
	c.delete("a", s)
	require.Equal(t, "b same -a", c.read(false))
	require.EqualValues(t, 1, c.counts.full.Value())
	require.Equal(t, 1, s.Requests("/apps"))

	c.put("c", s) // which we miss
	s.Settle()
	require.Equal(t, "bc same", c.read(false))
	require.EqualValues(t, 1, c.counts.mismatches.Value())
	require.Equal(t, 2, s.Requests("/apps"))
	c.delete("b", s)
	c.put("d", s) // of which the hash knows nothing
	s.Settle()
	require.Equal(t, "bc same", c.read(false))
	require.Equal(t, "cd same", c.read(true), "everything is read now and then")
}

// TestWhenChangesAreNotTold has everything read each time.
func TestWhenChangesAreNotTold(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusNotImplemented} {
		c := newCluster(t, 1)
		s := c.servers[0]
		s.Answer("/apps/delta", status)
		c.put("a", s)
		c.put("b", s)
		require.Equal(t, "ab outage", c.read(true))
		c.delete("b", s)
		require.Equal(t, "a same", c.read(false))
		require.Equal(t, 1, s.Requests("/apps/delta"), "it is not asked again")
		s.Answer("/apps/delta", 0)
		require.Equal(t, "a same -b", c.read(true), "but when everything is read")
		c.put("c", s)
		require.Equal(t, "ac same -b", c.read(false))
		require.Equal(t, 3, s.Requests("/apps"))
		s.Answer("/apps/delta", status) // it is told no more
		c.put("d", s)
		require.Equal(t, "acd same", c.read(false))
	}
}

// TestMemories tells a server that was away from one that has forgotten, and from another one.
func TestMemories(t *testing.T) {
	c := newCluster(t, 1)
	s := c.servers[0]
	c.put("a", s)
	c.put("b", s)
	c.read(true)
	s.Stop()
	_, err := c.next(t.Context(), false)
	require.ErrorIs(t, err, errUnreachable)
	c.delete("b", s)
	s.Restart()
	require.Equal(t, "a same outage -b", c.read(false), "it was away for us only")
	s.Forget()
	require.Empty(t, c.read(false), "its count of changes went back")
	require.EqualValues(t, 1, c.counts.memories.Value())
	c.put("a", s)
	require.Equal(t, "a same", c.read(false))
	s.Stop()
	_, err = c.next(t.Context(), false)
	require.Error(t, err)
	s.Forget()
	c.put("a", s)
	s.Restart()
	require.Equal(t, "a outage", c.read(false), "it has taken it at another time")
}

func TestSeveralServers(t *testing.T) {
	c := newCluster(t, 3)
	one, two, three := c.servers[0], c.servers[1], c.servers[2]
	for _, id := range []string{"a", "b", "c", "d"} {
		c.put(id, two, three)
	}
	c.put("a", one) // it was started a moment ago
	require.Equal(t, "abcd outage", c.read(true))
	require.Equal(t, two.Host(), c.server)
	for range 3 {
		c.put("e", two)
		c.read(false)
		require.Equal(t, two.Host(), c.server, "it is stuck to")
	}
	two.Stop()
	require.Equal(t, "abcd", c.read(false), "there was no outage")
	require.Equal(t, three.Host(), c.server)
	for _, id := range []string{"b", "c", "d"} {
		c.put(id, one)
	}
	require.Equal(t, "abcd", c.read(true), "the first one is gone back to, when everything is read")
	require.Equal(t, one.Host(), c.server)
	one.Stop()
	three.Stop()
	_, err := c.next(t.Context(), false)
	require.ErrorIs(t, err, errUnreachable)
	for _, s := range c.servers {
		require.ErrorContains(t, err, s.Host())
	}
	three.Restart()
	three.Ask("me:word")
	_, err = c.next(t.Context(), false)
	require.ErrorIs(t, err, client.ErrDenied)
	three.Ask("")
	require.Equal(t, "abcd outage", c.read(false))
}

// TestAHashThatIsNeverRight costs no more than one reading of everything now and then.
func TestAHashThatIsNeverRight(t *testing.T) {
	c := newCluster(t, 1)
	s := c.servers[0]
	s.Hash("UP_7_")
	c.put("a", s)
	require.Equal(t, "a outage part", c.read(true))
	c.again = time.Hour
	c.put("b", s)
	require.Equal(t, "ab same part", c.read(false), "changes count all the same")
	require.Equal(t, "ab same unchanged part", c.read(false))
	require.Equal(t, 1, s.Requests("/apps"))
	c.again = 0
	s.Hash("")
	s.Settle()
	require.Equal(t, "ab same", c.read(false))
}

// TestWhoDoesNotAnswerHoldsUpNobody has one of two servers take requests and say nothing.
func TestWhoDoesNotAnswerHoldsUpNobody(t *testing.T) {
	c := newCluster(t, 2)
	c.put("a", c.servers[1])
	c.patience = time.Millisecond
	c.asker = stuck{c.asker, c.servers[0].Host()}
	require.Equal(t, "a outage", c.read(true))
	ctx, cancel := context.WithCancel(t.Context())
	c.asker = stuck{c.asker, c.servers[1].Host()}
	cancel()
	_, err := c.next(ctx, true)
	require.ErrorIs(t, err, context.Canceled)
}

type stuck struct {
	asker
	server string
}

func (s stuck) All(ctx context.Context, server string) (*client.Reply, error) {
	if server == s.server {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.asker.All(ctx, server)
}

// balancer is one address behind which now the one, now the other server stands.
type balancer struct {
	asker
	now *eurekatest.Server
}

func (b *balancer) Servers() []string { return []string{"balancer"} }

func (b *balancer) All(ctx context.Context, _ string) (*client.Reply, error) {
	return b.asker.All(ctx, b.now.Host())
}

func (b *balancer) One(ctx context.Context, _ string, key wire.Key) (*client.Reply, error) {
	return b.asker.One(ctx, b.now.Host(), key)
}

func (b *balancer) Changes(ctx context.Context, _ string) (*client.Reply, error) {
	return b.asker.Changes(ctx, b.now.Host())
}

// TestAnotherServerBehindOneAddress is the table of a balancer that goes over to another server while nothing may be read anew: what that
// one lists is never taken for what the first one had.
func TestAnotherServerBehindOneAddress(t *testing.T) {
	for name, c := range map[string]struct {
		other    func(c *cluster, s *eurekatest.Server)
		at, then string // what is read at once, and when everything may be read
	}{
		"it has two so far": {func(c *cluster, s *eurekatest.Server) {
			for n := range 12 { // others ask it, too, and its changes are counted
				c.put(string(rune('a'+n%2)), s)
			}
		}, "abcde same unchanged", "ab"},
		"it has as many, of which it took two lately": {func(c *cluster, s *eurekatest.Server) {
			for _, id := range []string{"x", "y", "z"} {
				c.put(id, s)
			}
			s.Settle()
			for n := range 12 {
				c.put(string(rune('a'+n%2)), s)
			}
		}, "abcde same", "abxyz"},
		"it was parted from one": {func(c *cluster, s *eurekatest.Server) {
			for _, id := range []string{"a", "b", "c", "d", "e"} {
				c.put(id, s)
			}
			for range 12 {
				s.Settle()
			}
			c.delete("e", s)
		}, "abcde same unchanged", "abcd -e"},
	} {
		t.Run(name, func(t *testing.T) {
			servers := newCluster(t, 2)
			b := &balancer{servers.asker, servers.servers[0]}
			servers.asker, servers.again = b, time.Hour
			for _, id := range []string{"a", "b", "c", "d", "e"} {
				servers.put(id, b.now)
			}
			b.now.Settle()
			require.Equal(t, "abcde outage", servers.read(true))
			b.now = servers.servers[1]
			c.other(servers, b.now)
			require.Equal(t, c.at, servers.read(false))
			require.Equal(t, c.then, servers.read(true), "it is another memory, so that what it does not list is in doubt")
		})
	}
}
