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

// clientOf returns a client with instances that answer, refuse or hang, by their host.
func clientOf(reply func(host string) (hangs bool, err error)) *Client {
	client := New()
	client.queries = func(i provider.Instance) []query {
		slow := query{"test", func(ctx context.Context, _ string, i provider.Instance) (m provider.Metadata, err error) {
			hangs, err := reply(i.Host)
			if hangs {
				<-ctx.Done()
				return m, errors.New("it took too long")
			}
			return provider.Metadata{Revision: i.Revision, Services: []provider.Service{{Name: "a", Protocol: "dubbo"}}}, err
		}}
		return []query{slow, slow}
	}
	return client
}

func instanceOn(host string) provider.Instance {
	return provider.Instance{Host: host, Port: 1, Revision: "r", Service: &provider.MetadataService{Protocol: "dubbo", Port: 1}}
}

// TestAnsweringInstance_NotDelayedBySilentOnes has thousands of instances that accept connections and never answer,
// each asked repeatedly as a source does.
func TestAnsweringInstance_NotDelayedBySilentOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := clientOf(func(host string) (bool, error) { return host != "frank", nil })
		ctx, cancel := context.WithCancel(t.Context())
		const mute = 2000
		for n := range mute {
			go func() {
				for ctx.Err() == nil {
					requestCtx, end := context.WithTimeout(ctx, 8*time.Second)
					_, _, err := client.Ask(requestCtx, instanceOn(fmt.Sprintf("mute%d", n)))
					end()
					if err == nil {
						panic("it answers")
					}
					time.Sleep(10 * time.Second)
				}
			}()
		}
		ask := func(limit time.Duration) {
			t.Helper()
			began := time.Now()
			_, how, err := client.Ask(t.Context(), instanceOn("frank"))
			require.NoError(t, err)
			require.Equal(t, "test", how)
			require.LessOrEqual(t, time.Since(began), limit)
		}
		synctest.Wait()
		ask(mute * fastTimeout / maxFast) // behind all of them, which are new
		time.Sleep(time.Minute)
		ask(0) // they are known
		cancel()
		time.Sleep(time.Minute)
	})
}

// TestSilentInstance_AskedAgain has it answer after a while, among others that do not.
func TestSilentInstance_AskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var repaired atomic.Bool
		client := clientOf(func(string) (bool, error) { return !repaired.Load(), nil })
		_, _, err := client.Ask(t.Context(), instanceOn("a"))
		require.ErrorContains(t, err, "it took too long")
		require.True(t, client.limiter.isSilent("a:1"))
		for range maxSlow {
			go func() { _, _, _ = client.Ask(t.Context(), instanceOn("a")) }()
		}
		synctest.Wait()
		_, _, err = client.Ask(t.Context(), instanceOn("a"))
		require.ErrorIs(t, err, errCrowded)
		_, _, err = client.Ask(t.Context(), instanceOn("b"))
		require.ErrorIs(t, err, errCrowded, "it did not answer within fastTimeout, and there is no room for more")
		time.Sleep(2 * patience)
		repaired.Store(true)
		for _, host := range []string{"a", "b"} {
			_, _, err = client.Ask(t.Context(), instanceOn(host))
			require.NoError(t, err)
			require.False(t, client.limiter.isSilent(host+":1"))
		}
	})
}

// TestRefusingInstance_NotSilent has its next turn in the fast lane.
func TestRefusingInstance_NotSilent(t *testing.T) {
	client := clientOf(func(string) (bool, error) { return false, errors.New("no") })
	_, _, err := client.Ask(t.Context(), instanceOn("a"))
	require.ErrorContains(t, err, "test at a:1: no")
	require.False(t, client.limiter.isSilent("a:1"))
	require.Empty(t, client.limiter.fast)
}

// TestSilentInstances_MemoryBounded has more of them than are remembered.
func TestSilentInstances_MemoryBounded(t *testing.T) {
	askLimiter := newAskLimiter()
	for n := range maxSilent + 1 {
		askLimiter.set(fmt.Sprint(n), true)
	}
	require.Len(t, askLimiter.silent, 1)
}
