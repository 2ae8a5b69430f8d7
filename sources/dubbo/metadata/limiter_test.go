package metadata

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/dubbo/provider"
)

// says are instances that answer, refuse or say nothing, by their host.
func says(of func(host string) (hangs bool, err error)) *Client {
	c := New()
	c.ways = func(i provider.Instance) []way {
		one := way{"test", func(ctx context.Context, _ string, i provider.Instance) (m provider.Metadata, err error) {
			hangs, err := of(i.Host)
			if hangs {
				<-ctx.Done()
				return m, errors.New("it took too long")
			}
			return provider.Metadata{Revision: i.Revision, Services: []provider.Service{{Name: "a", Protocol: "dubbo"}}}, err
		}}
		return []way{one, one}
	}
	return c
}

func at(host string) provider.Instance {
	return provider.Instance{Host: host, Port: 1, Revision: "r", Service: &provider.MetadataService{Protocol: "dubbo", Port: 1}}
}

// TestOneThatAnswersIsNotHeldUpByThoseThatDoNot has thousands of instances that take connections and say nothing, each asked again and
// again as a source does it.
func TestOneThatAnswersIsNotHeldUpByThoseThatDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := says(func(host string) (bool, error) { return host != "frank", nil })
		ctx, cancel := context.WithCancel(t.Context())
		const mute = 2000
		for n := range mute {
			go func() {
				for ctx.Err() == nil {
					one, end := context.WithTimeout(ctx, 8*time.Second)
					_, _, err := c.Ask(one, at(fmt.Sprintf("mute%d", n)))
					end()
					if err == nil {
						panic("it answers")
					}
					time.Sleep(10 * time.Second)
				}
			}()
		}
		ask := func(within time.Duration) {
			t.Helper()
			began := time.Now()
			_, how, err := c.Ask(t.Context(), at("frank"))
			require.NoError(t, err)
			require.Equal(t, "test", how)
			require.LessOrEqual(t, time.Since(began), within)
		}
		synctest.Wait()
		ask(mute * fastTimeout / maxFast) // behind all of them, which are new
		time.Sleep(time.Minute)
		ask(0) // they are known
		cancel()
		time.Sleep(time.Minute)
	})
}

// TestOneThatSaidNothingIsAskedAgain has it answer after a while, among others that do not.
func TestOneThatSaidNothingIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		c := says(func(string) (bool, error) { return !mended.Load(), nil })
		_, _, err := c.Ask(t.Context(), at("a"))
		require.ErrorContains(t, err, "it took too long")
		require.True(t, c.limiter.isSilent("a:1"))
		for range maxSlow {
			go func() { _, _, _ = c.Ask(t.Context(), at("a")) }()
		}
		synctest.Wait()
		_, _, err = c.Ask(t.Context(), at("a"))
		require.ErrorIs(t, err, errCrowded)
		_, _, err = c.Ask(t.Context(), at("b"))
		require.ErrorIs(t, err, errCrowded, "it did not answer within fastTimeout, and there is no room for more")
		time.Sleep(2 * patience)
		mended.Store(true)
		for _, host := range []string{"a", "b"} {
			_, _, err = c.Ask(t.Context(), at(host))
			require.NoError(t, err)
			require.False(t, c.limiter.isSilent(host+":1"))
		}
	})
}

// TestOneThatRefusesIsNotSilent has its next turn in the fast lane.
func TestOneThatRefusesIsNotSilent(t *testing.T) {
	c := says(func(string) (bool, error) { return false, errors.New("no") })
	_, _, err := c.Ask(t.Context(), at("a"))
	require.ErrorContains(t, err, "test at a:1: no")
	require.False(t, c.limiter.isSilent("a:1"))
	require.Empty(t, c.limiter.fast)
}

// TestOfHowManyItIsKnownThatTheySayNothing has more of them than are remembered.
func TestOfHowManyItIsKnownThatTheySayNothing(t *testing.T) {
	l := newAskLimiter()
	for n := range maxSilent + 1 {
		l.set(fmt.Sprint(n), true)
	}
	require.Len(t, l.silent, 1)
}
