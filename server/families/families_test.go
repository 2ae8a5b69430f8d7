package families

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/turns"
)

func newSet(limits Limits) (*Set[string, *string], *[]string) {
	var dropped []string
	return New[string]("tastes", limits, func(*string) int { return 10 }, func(s *string) { dropped = append(dropped, *s) }), &dropped
}

// making makes a family that is expected to cost 10.
func making(do func() *string) Maker[*string] {
	return Maker[*string]{func() int { return 10 }, func(context.Context) (*string, error) { return do(), nil }}
}

func use(t *testing.T, s *Set[string, *string], key, host string) (*string, func()) {
	t.Helper()
	f, release, err := s.Acquire(t.Context(), key, host, making(func() *string { return &key }))
	require.NoError(t, err)
	return f, release
}

// refused checks that a use is refused.
func refused(t *testing.T, set *Set[string, *string]) func(key, host, why string) {
	return func(key, host, why string) {
		t.Helper()
		_, _, err := set.Acquire(t.Context(), key, host, making(func() *string { return &key }))
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.ErrorContains(t, err, why)
	}
}

// A family that takes long to make delays only its own users; a canceled user stops waiting.
func TestSlowFamily_DelaysOnlyItsUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, _ := newSet(Limits{Max: 10, MaxOfHost: 10})
		set.turns = turns.New(2)
		slow, finished := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(finished)
			_, release, err := set.Acquire(t.Context(), "slow", "h", making(func() *string { <-slow; return new(string) }))
			assert.NoError(t, err)
			release()
		}()
		synctest.Wait()
		use(t, set, "other", "h")
		ctx, cancel := context.WithCancel(t.Context())
		canceled := make(chan error)
		go func() {
			_, _, err := set.Acquire(ctx, "slow", "h", making(nil))
			canceled <- err
		}()
		synctest.Wait()
		cancel()
		require.Equal(t, codes.Canceled, status.Code(<-canceled))
		close(slow)
		<-finished
		require.Equal(t, map[string]map[string]int{"h": {"other": 1}}, set.hosts)
	})
}

// If a maker fails, the next user tries again, and the failed family does not count.
func TestFailedFamily_MadeAgain(t *testing.T) {
	s, _ := newSet(Limits{Max: 10, MaxOfHost: 10})
	require.Panics(t, func() { _, _, _ = s.Acquire(t.Context(), "a", "h", making(func() *string { panic("no") })) })
	require.Empty(t, s.hosts)
	_, release := use(t, s, "a", "h")
	release()
}

// A host that invents families does not use up those of other hosts.
func TestLimits(t *testing.T) {
	set, _ := newSet(Limits{Max: 5, MaxOfHost: 3})
	fails := refused(t, set)
	var releases []func()
	for i := range 3 {
		_, release := use(t, set, strconv.Itoa(i), "greedy")
		releases = append(releases, release)
	}
	fails("3", "greedy", "too many different tastes in use by greedy: the limit is 3")
	use(t, set, "3", "other")
	fails("3", "greedy", "by greedy") // though another host made it
	_, releaseAgain := use(t, set, "0", "greedy")
	releases[0]()
	fails("3", "greedy", "by greedy") // it is used still
	releaseAgain()
	use(t, set, "3", "greedy")
	use(t, set, "4", "")
	use(t, set, "5", "")
	fails("6", "", "in use: the limit is 5")
	use(t, set, "5", "third")
}

// Nor does a host that invents expensive families: they count by their estimated cost, from the request on.
func TestLimitsOfCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, _ := newSet(Limits{Max: 100, MaxOfHost: 100, MaxCost: 50, MaxCostOfHost: 30}) // each costs 10
		set.turns = turns.New(2)
		fails := refused(t, set)
		use(t, set, "0", "greedy")
		_, release := use(t, set, "1", "greedy")
		slow, finished := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(finished)
			_, _, err := set.Acquire(t.Context(), "slow", "greedy", making(func() *string { <-slow; return new(string) }))
			assert.NoError(t, err)
		}()
		synctest.Wait()
		use(t, set, "0", "greedy") // which is there
		fails("2", "greedy", "the different tastes in use by greedy cost 30, and one more would cost 10: the limit is 30")
		close(slow)
		<-finished
		fails("2", "greedy", "the different tastes in use by greedy cost 30, and one more would cost 10: the limit is 30")
		use(t, set, "2", "other")
		use(t, set, "3", "other")
		fails("4", "third", "the different tastes in use cost 50, and one more would cost 10: the limit is 50")
		release()
		use(t, set, "4", "greedy")
	})
}

// A refusal by number needs no estimate, and estimates take turns, as makers do.
func TestEstimates_TakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, _ := newSet(Limits{Max: 4, MaxOfHost: 3})
		set.turns = turns.New(1)
		estimates, next := 0, make(chan struct{})
		maker := Maker[*string]{
			func() int { estimates++; <-next; return 10 }, func(context.Context) (*string, error) { return new(string), nil },
		}
		for i := range 3 {
			use(t, set, strconv.Itoa(i), "greedy")
		}
		_, _, err := set.Acquire(t.Context(), "more", "greedy", maker)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Zero(t, estimates)
		for _, key := range []string{"a", "a", "b"} {
			go func() { _, _, _ = set.Acquire(t.Context(), key, "", maker) }()
		}
		synctest.Wait()
		require.Equal(t, 1, estimates, "at once")
		close(next)
		synctest.Wait()
		require.Equal(t, 1, estimates, "the one that is made is the last one allowed")
		require.Len(t, set.members, 4)
		_, _, err = set.Acquire(t.Context(), "more", "other", maker)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Equal(t, 1, estimates)
	})
}

// An unused family is kept while it is cheap; the least recently used one is dropped first.
func TestIdleFamilies_DroppedAboveCost(t *testing.T) {
	set, dropped := newSet(Limits{Max: 10, MaxOfHost: 10, MaxIdleCost: 30})
	good, release := use(t, set, "good", "h")
	release()
	for i := range 4 {
		_, release := use(t, set, strconv.Itoa(i), "h")
		release()
		same, release := use(t, set, "good", "h")
		require.Same(t, good, same)
		release()
	}
	require.Equal(t, []string{"0", "1"}, *dropped)
	require.Empty(t, set.hosts)
}

// A family that would exceed a limit is refused by its estimate before anything is made; one that would be the only one
// is made, whatever it costs.
func TestEstimateAboveLimit_RefusedBeforeMaking(t *testing.T) {
	set, _ := newSet(Limits{Max: 10, MaxOfHost: 10, MaxCostOfHost: 30})
	makes := 0
	makerOf := func(estimate int) Maker[*string] {
		return Maker[*string]{func() int { return estimate }, func(context.Context) (*string, error) { makes++; return new(string), nil }}
	}
	_, _, err := set.Acquire(t.Context(), "a", "h", makerOf(1000))
	require.NoError(t, err)
	_, _, err = set.Acquire(t.Context(), "b", "h", makerOf(21))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, _, err = set.Acquire(t.Context(), "b", "h", makerOf(20))
	require.NoError(t, err)
	require.Equal(t, 2, makes)
}

// A family is made as long as a user waits for it. When the last user stops waiting, its making is canceled, and no
// state remains.
func TestFamilyWithoutWaiters_Canceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, dropped := newSet(Limits{Max: 10, MaxOfHost: 10})
		maker := Maker[*string]{func() int { return 10 }, func(ctx context.Context) (*string, error) { <-ctx.Done(); return nil, ctx.Err() }}
		canceled := make(chan error)
		var cancels []func()
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			go func() {
				_, _, err := set.Acquire(ctx, "slow", "h", maker)
				canceled <- err
			}()
			synctest.Wait()
		}
		cancels[0]() // the user that makes it; the other one still waits for it
		synctest.Wait()
		require.Len(t, set.members, 1)
		require.Equal(t, 1, set.hosts["h"]["slow"])
		cancels[1]()
		for range 2 {
			require.Equal(t, codes.Canceled, status.Code(<-canceled))
		}
		require.Empty(t, set.members)
		require.Empty(t, set.hosts)
		require.Empty(t, *dropped)
		_, release := use(t, set, "slow", "h")
		release()
	})
}

// One that was made when its last user had gone is dropped.
func TestLateFamily_Dropped(t *testing.T) {
	s, dropped := newSet(Limits{Max: 10, MaxOfHost: 10})
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err := s.Acquire(ctx, "late", "h", Maker[*string]{func() int { return 10 }, func(ctx context.Context) (*string, error) {
		cancel()
		<-ctx.Done()
		late := "late"
		return &late, nil
	}})
	require.Equal(t, codes.Canceled, status.Code(err))
	require.Equal(t, []string{"late"}, *dropped)
	require.Empty(t, s.members)
}

// However many an address asks for, another one waits for one of them at the most.
func TestAddressesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, _ := newSet(Limits{Max: 100, MaxOfHost: 100})
		set.turns = turns.New(1)
		var order []string
		next := make(chan struct{})
		for _, key := range []string{"g1", "g2", "g3", "honest"} {
			go func() {
				_, _, err := set.Acquire(t.Context(), key, key[:1], making(func() *string {
					<-next
					order = append(order, key)
					return &key
				}))
				assert.NoError(t, err)
			}()
			synctest.Wait()
		}
		close(next)
		synctest.Wait()
		require.Equal(t, []string{"g1", "g2", "honest", "g3"}, order)
	})
}

// TestDroppedFamilies_MemoryReclaimed drops families one by one, and looks when their memory goes back to the system.
func TestDroppedFamilies_MemoryReclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, dropped := newSet(Limits{Max: 10, MaxOfHost: 10, MaxIdleCost: 30})
		state := func() (cost int, reclaiming bool) {
			set.mu.Lock()
			defer set.mu.Unlock()
			return set.dropped, set.reclaiming
		}
		for i := range 7 {
			_, release := use(t, set, strconv.Itoa(i), "h")
			release()
		}
		require.Len(t, *dropped, 4)
		cost, _ := state()
		require.Equal(t, 40, cost)
		time.Sleep(reclaimDelay)
		synctest.Wait()
		cost, reclaiming := state()
		require.Zero(t, cost)
		require.False(t, reclaiming)

		// A later drop is reclaimed, too, but a tiny one is not.
		_, release := use(t, set, "8", "h")
		release()
		_, reclaiming = state()
		require.True(t, reclaiming)
		time.Sleep(reclaimDelay)
		synctest.Wait()
		set.discard()
		cost, reclaiming = state()
		require.Zero(t, cost)
		require.False(t, reclaiming)
	})
}

// A family that is kept counts against the limits when it is used again.
func TestReusedFamilies_CountAgainstLimits(t *testing.T) {
	s, _ := newSet(Limits{Max: 5, MaxOfHost: 100, MaxCost: 50, MaxCostOfHost: 30, MaxIdleCost: 1000})
	for i := range 20 {
		_, release := use(t, s, strconv.Itoa(i), "h")
		release()
	}
	inUse := 0
	for _, host := range []string{"h", "other"} {
		for i := range 20 {
			if _, _, err := s.Acquire(t.Context(), strconv.Itoa(i), host, making(func() *string { return new(string) })); err == nil {
				inUse++
			}
		}
		require.Equal(t, map[string]int{"h": 3, "other": 6}[host], inUse)
	}
}

// Only a family without users is forgotten.
func TestForget(t *testing.T) {
	set, dropped := newSet(Limits{Max: 10, MaxOfHost: 10, MaxIdleCost: 30})
	_, release := use(t, set, "a", "h")
	set.Forget("a")
	set.Forget("unknown")
	require.Empty(t, *dropped)
	release()
	require.Empty(t, *dropped, "it is kept for clients that come back")
	require.True(t, set.Has("a"))
	set.Forget("a")
	set.Forget("a")
	require.Equal(t, []string{"a"}, *dropped)
	require.False(t, set.Has("a"))
}

// BenchmarkANewFamily is a client that has a family made while 3,000 are in use; it may have one more.
func BenchmarkANewFamily(b *testing.B) {
	type key struct{ a, b string } // as large as a profile
	s := New[key]("tastes", Limits{Max: 5000, MaxOfHost: 1000, MaxCostOfHost: 1_000_000}, func(*string) int { return 10 }, func(*string) {})
	come := func(i int, host string) func() {
		_, release, err := s.Acquire(b.Context(), key{strings.Repeat("l", 100), strings.Repeat("p", 300) + strconv.Itoa(i)}, host,
			making(func() *string { return new(string) }))
		require.NoError(b, err)
		return release
	}
	for i := range 3000 {
		b.Cleanup(come(i, strconv.Itoa(i/1000)))
	}
	for i := 0; b.Loop(); i++ {
		come(3000+i, "honest")()
	}
}
