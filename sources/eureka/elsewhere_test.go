package eureka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// parted are two servers with instances, of which the first is followed.
func parted(t *testing.T, ids ...string) *cluster {
	c := newCluster(t, 2)
	for _, id := range ids {
		c.put(id, c.servers...)
	}
	c.read(true)
	require.Equal(t, c.servers[0].Host(), c.server)
	return c
}

// TestWhatExpiresAtOneServerAndNotAtAnother has the server that is followed be parted from the instances and from its peer.
func TestWhatExpiresAtOneServerAndNotAtAnother(t *testing.T) {
	c := parted(t, "a", "b", "c")
	one, two := c.servers[0], c.servers[1]
	c.hold = time.Hour
	one.Expire("orders", "a")
	require.Equal(t, "bc same elsewhere:a -a", c.read(false))
	require.Equal(t, "abc", c.read(false), "and the servers are compared")
	require.Equal(t, two.Host(), c.server)
	require.Empty(t, c.elsewhere)
}

// TestWhoIsAskedForWhatExpired is the table of what the other server makes of an instance of twenty that is gone at the one that is
// followed, which stays the fullest.
func TestWhoIsAskedForWhatExpired(t *testing.T) {
	const rest = "bcdefghijklmnopqrst"
	for name, c := range map[string]struct {
		change     func(*cluster)
		at         string
		then       func(*cluster)
		afterwards string
	}{
		"it is there": {
			func(c *cluster) { c.servers[0].Expire("orders", "a") }, " same elsewhere:a -a", func(*cluster) {},
			" same elsewhere:a -a",
		},
		"it has deregistered": {func(c *cluster) { c.delete("a", c.servers[0]) }, " same -a", func(*cluster) {}, " same unchanged"},
		"it expired there too": {
			func(c *cluster) { c.servers[0].Expire("orders", "a"); c.servers[1].Expire("orders", "a") }, " same -a",
			func(*cluster) {}, " same unchanged",
		},
		"that one preserves itself": {
			func(c *cluster) { c.servers[0].Expire("orders", "a"); c.servers[1].Silence("orders", "a") }, " same -a", func(*cluster) {},
			" same unchanged",
		},
		"that one is away": {
			func(c *cluster) { c.servers[0].Expire("orders", "a"); c.servers[1].Stop() }, " same -a", func(*cluster) {},
			" same unchanged",
		},
		"it is gone unsaid": {
			func(c *cluster) { c.servers[0].Delete("orders", "a"); c.servers[0].Settle() }, " same elsewhere:a",
			func(*cluster) {}, " same elsewhere:a",
		},
		"it deregisters there": {
			func(c *cluster) { c.servers[0].Expire("orders", "a") }, " same elsewhere:a -a", func(c *cluster) { c.delete("a", c.servers[1]) },
			" same -a",
		},
		"that one goes away later": {
			func(c *cluster) { c.servers[0].Expire("orders", "a") }, " same elsewhere:a -a", func(c *cluster) { c.servers[1].Stop() },
			" same elsewhere:a -a",
		},
		"that one goes away for long": {
			func(c *cluster) { c.servers[0].Expire("orders", "a") }, " same elsewhere:a -a",
			func(c *cluster) { c.servers[1].Stop(); c.hold = 0 }, " same -a",
		},
		"it is back": {
			func(c *cluster) { c.servers[0].Expire("orders", "a") }, " same elsewhere:a -a",
			func(c *cluster) { c.put("a", c.servers[0]) }, "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := parted(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t")
			cluster.hold = time.Hour
			c.change(cluster)
			require.Equal(t, rest+c.at, cluster.read(false))
			c.then(cluster)
			if c.afterwards == "a" {
				require.Equal(t, "a"+rest+" same", cluster.read(false))
				require.Empty(t, cluster.elsewhere)
				return
			}
			require.Equal(t, rest+c.afterwards, cluster.read(false))
			require.Equal(t, cluster.servers[0].Host(), cluster.server)
		})
	}
}

// TestWhatIsElsewhereOutlivesARestart has another run begin with what one noted.
func TestWhatIsElsewhereOutlivesARestart(t *testing.T) {
	c := parted(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k")
	c.servers[0].Expire("orders", "a")
	require.Equal(t, "bcdefghijk same elsewhere:a -a", c.read(false))
	marks, keys := c.signs(), c.keys()
	c.follower = newFollower(c.asker, newCounts(), 0, marks)
	c.patience = 10 * time.Second
	c.recall(keys)
	require.Equal(t, "bcdefghijk same outage elsewhere:a -a", c.read(true))
}
