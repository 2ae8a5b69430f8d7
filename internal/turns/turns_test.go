package turns

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Addresses take turns, however much one of them has to be done.
func TestAddressesTakeTurns(t *testing.T) {
	h := New(2)
	require.Nil(t, h.Queue("a"))
	require.Nil(t, h.Queue("a"))
	var turns []<-chan struct{}
	for _, host := range []string{"a", "a", "b", "c", "b"} {
		turns = append(turns, h.Queue(host))
	}
	var order []int
	for range len(turns) {
		order = append(order, nextOf(h, turns))
	}
	require.Equal(t, []int{0, 2, 3, 1, 4}, order)
	h.Leave()
	h.Leave()
	require.Equal(t, 2, h.free)
	require.Empty(t, h.waiting, "nothing is kept of who waited")
}

// nextOf says which of those has the turn now that is given back, and had none; -1 for none.
func nextOf(h *Turns, turns []<-chan struct{}) int {
	had := make([]bool, len(turns))
	for i := range turns {
		had[i] = closed(turns[i])
	}
	h.Leave()
	for i := range turns {
		if !had[i] && closed(turns[i]) {
			return i
		}
	}
	return -1
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Who gives up waiting takes nobody's turn, wherever he stands, and also if his turn has just come.
func TestWhoGivesUpTakesNoTurn(t *testing.T) {
	h := New(1)
	require.Nil(t, h.Queue("a"))
	var turns []<-chan struct{}
	hosts := []string{"a", "a", "b", "c", "c"}
	for _, host := range hosts {
		turns = append(turns, h.Queue(host))
	}
	h.GiveUp("a", turns[0])
	h.GiveUp("b", turns[2])
	require.Equal(t, 1, nextOf(h, turns))
	require.Equal(t, 3, nextOf(h, turns))
	h.GiveUp("c", turns[3]) // its turn is there
	require.True(t, closed(turns[4]))
	h.Leave()
	require.Equal(t, 1, h.free)
	require.Empty(t, h.waiting)
	require.Empty(t, h.hosts)
}

// However many come and give up, there is never more at work than may be, and no turn is lost.
func TestNoTurnIsLost(t *testing.T) {
	turns := New(3)
	var all sync.WaitGroup
	var busy, done atomic.Int64
	for i := range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		if i%3 == 0 {
			go cancel()
		}
		all.Go(func() {
			defer cancel()
			_ = turns.Do(ctx, string(rune('a'+i%7)), func() { // who is told that he has none is counted below
				if busy.Add(1) > 3 {
					t.Error("more than three at once")
				}
				done.Add(1)
				busy.Add(-1)
			})
		})
	}
	all.Wait()
	require.GreaterOrEqual(t, done.Load(), int64(666), "who waits has his turn")
	require.Equal(t, 3, turns.free)
	require.Empty(t, turns.waiting)
	require.Empty(t, turns.hosts)
}
