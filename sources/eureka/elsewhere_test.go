package eureka

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/eureka/mapping"
)

// parted are two servers with instances, of which the first is followed.
func parted(t *testing.T, ids ...string) *cluster {
	c := newCluster(t, 2)
	for _, id := range ids {
		c.put(id, c.servers...)
	}
	c.begin()
	require.Equal(t, strings.Join(ids, ""), c.turns(true))
	require.Equal(t, c.servers[0].Host(), c.server)
	return c
}

// begin has a state begin that knows of nothing.
func (c *cluster) begin() {
	m, err := mapping.New(mapping.Options{}, nil)
	require.NoError(c.t, err)
	c.state = newState(m, Settings{Hold: time.Hour, KeepEmpty: time.Hour})
}

// turns reads, and asks for what went. It returns what is listed, and who is there by the word of another server.
func (c *cluster) turns(all bool) (text string) {
	c.t.Helper()
	r, err := c.next(c.t.Context(), all)
	require.NoError(c.t, err)
	require.NoError(c.t, advance(c.t.Context(), c.follower, c.state, r, time.Now()))
	for _, i := range r.view.Instances() {
		text += i.ID
	}
	var elsewhere []string
	for _, l := range c.state.lost {
		if !l.gone && l.confirmed != "" && l.confirmed != c.server {
			elsewhere = append(elsewhere, " elsewhere:"+l.key.ID)
		}
	}
	slices.Sort(elsewhere)
	return text + strings.Join(elsewhere, "")
}

// believes reports whether an instance is believed. All are at one place, so that it is asked what is not gone.
func (c *cluster) believes(id string) bool {
	for _, l := range c.state.lost {
		if l.key.ID == id {
			return !l.gone
		}
	}
	return false
}

// TestWhatExpiresAtOneServerAndNotAtAnother has the server that is followed be parted from the instances and from its peer.
func TestWhatExpiresAtOneServerAndNotAtAnother(t *testing.T) {
	c := parted(t, "a", "b", "c")
	c.servers[0].Expire("orders", "a")
	require.Equal(t, "bc elsewhere:a", c.turns(false))
	require.Equal(t, "abc", c.turns(false), "and the servers are compared")
	require.Equal(t, c.servers[1].Host(), c.server)
}

// TestWhoIsAskedForWhatExpired is the table of what the other server makes of an instance of twenty that is gone at the one that is
// followed, which stays the fullest.
func TestWhoIsAskedForWhatExpired(t *testing.T) {
	const rest = "bcdefghijklmnopqrst"
	nothing := func(*cluster) {}
	for name, c := range map[string]struct {
		change     func(*cluster)
		at         string
		then       func(*cluster)
		afterwards string
	}{
		"it is there":         {func(c *cluster) { c.servers[0].Expire("orders", "a") }, " elsewhere:a", nothing, " elsewhere:a"},
		"it has deregistered": {func(c *cluster) { c.delete("a", c.servers[0]) }, "", nothing, ""},
		"it expired there too": {
			func(c *cluster) { c.servers[0].Expire("orders", "a"); c.servers[1].Expire("orders", "a") }, "", nothing, "",
		},
		"that one preserves itself": {
			func(c *cluster) { c.servers[0].Expire("orders", "a"); c.servers[1].Silence("orders", "a") }, "", nothing, "",
		},
		"that one is away": {func(c *cluster) { c.servers[0].Expire("orders", "a"); c.servers[1].Stop() }, "", nothing, ""},
		"it is gone unsaid": {
			func(c *cluster) { c.servers[0].Delete("orders", "a"); c.servers[0].Settle() }, " elsewhere:a", nothing, " elsewhere:a",
		},
		"it deregisters there": {
			func(c *cluster) { c.servers[0].Expire("orders", "a") }, " elsewhere:a", func(c *cluster) { c.delete("a", c.servers[1]) }, "",
		},
		"that one goes away later": {
			func(c *cluster) { c.servers[0].Expire("orders", "a") }, " elsewhere:a", func(c *cluster) { c.servers[1].Stop() }, " elsewhere:a",
		},
		"that one goes away for long": {
			func(c *cluster) { c.servers[0].Expire("orders", "a") }, " elsewhere:a",
			func(c *cluster) { c.servers[1].Stop(); c.state.holdFor = 0 }, "",
		},
		"it is back": {
			func(c *cluster) { c.servers[0].Expire("orders", "a") }, " elsewhere:a", func(c *cluster) { c.put("a", c.servers[0]) }, "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := parted(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t")
			c.change(cluster)
			require.Equal(t, rest+c.at, cluster.turns(false))
			cluster.state.Contents(time.Now())
			require.Equal(t, c.at != "", cluster.believes("a"))
			c.then(cluster)
			if c.afterwards == "a" {
				require.Equal(t, "a"+rest, cluster.turns(false))
				return
			}
			require.Equal(t, rest+c.afterwards, cluster.turns(false))
			cluster.state.Contents(time.Now())
			require.Equal(t, c.afterwards != "", cluster.believes("a"))
			require.Equal(t, cluster.servers[0].Host(), cluster.server)
		})
	}
}

// TestWhatIsElsewhereOutlivesARestart has another run begin with what one noted.
func TestWhatIsElsewhereOutlivesARestart(t *testing.T) {
	c := parted(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k")
	c.servers[0].Expire("orders", "a")
	require.Equal(t, "bcdefghijk elsewhere:a", c.turns(false))
	marks, doubts := c.signs(), c.state.doubts(c.server)
	require.Len(t, doubts, 1)
	c.follower = newFollower(c.asker, newCounts(), 0, marks)
	c.patience = 10 * time.Second
	c.begin()
	c.state.recall(note{Doubts: doubts}, time.Now())
	require.Equal(t, "bcdefghijk elsewhere:a", c.turns(true))
}
