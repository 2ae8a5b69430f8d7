package adsc_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/internal/xdstest"
)

// TestComparison_RepairsLostChanges has a server that ignores initial_resource_versions: it does not report removals.
func TestComparison_RepairsLostChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler, summaries := recorder()
		subscription := subscribe(typeA, handler)
		subscription.Versions = map[string]string{"a": "1", "b": "1", "c": "1"}
		config := quietDelta("", subscription)
		config.CompareAfter = time.Hour
		var differences []int
		config.Hooks.Compared = func(typeURL string, n int) {
			assert.Equal(t, typeA, typeURL)
			differences = append(differences, n)
		}
		server := xdstest.DeltaInMemory(t, allowPings)
		inMemory(&config, server.Dial...)
		client := run(t, config)
		stream := server.Next()
		stream.Expect("node n1 A has map[a:1 b:1 c:1]")
		stream.Send(deltaResponse(t, "n", "v", "c@1", "d@1")) // its resources, without a and b
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		assert.Equal(t, "c@1 d@1 ", <-summaries)
		assert.Empty(t, summaries)
		require.Zero(t, server.Pending())
		time.Sleep(2 * time.Minute)
		stream = server.Next() // breaks off in the middle of the compare
		require.NoError(t, stream.SetHeader(chunked))
		stream.Expect("node n1 A")
		stream.Exchange(deltaResponse(t, "n", "", "b@2"))
		stream.End(errRestart)
		stream = server.Next()
		stream.Expect("node n1 A")
		// b differs, a was removed, and e was never reported.
		stream.Send(deltaResponse(t, "n", "v", "c@1", "d@1", "b@2", "e@1"))
		assert.Equal(t, "b@2 complete more ", <-summaries)
		assert.Equal(t, "c@1 d@1 b@2 e@1 complete ", <-summaries)
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		require.Zero(t, server.Pending(), "it is done once")
		assert.Equal(t, []int{3}, differences, "a has gone, b is another, and e is new")
		client.cancel()
	})
}

// TestComparison_SkippedAfterStartWithoutVersions: the server has sent all resources.
func TestComparison_SkippedAfterStartWithoutVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quietDelta("", subscribe(typeA, accept))
		config.CompareAfter = time.Hour
		config.Hooks.Compared = func(typeURL string, differences int) { t.Error(typeURL, differences) }
		server := xdstest.DeltaInMemory(t, allowPings)
		inMemory(&config, server.Dial...)
		client := run(t, config)
		server.Next().Send(deltaResponse(t, "n", "v", "a@1"))
		time.Sleep(10 * time.Hour)
		client.cancel()
		assert.Zero(t, server.Pending())
	})
}

// TestComparison_EndsAfterChangeOfNames has a server that ignores versions, and does not report missing names.
func TestComparison_EndsAfterChangeOfNames(t *testing.T) {
	for name, c := range map[string]struct{ names, changed []string }{
		"wildcard": {nil, []string{"*", "q"}},
		"by name":  {[]string{"a", "x"}, []string{"a", "q", "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &cache{resources: map[string]string{"a": "1", "x": "1"}}
				subscription := subscribe(typeA, h.handle, c.names...)
				subscription.Versions = map[string]string{"a": "1", "x": "1"}
				config := quietDelta("", subscription)
				config.CompareAfter = time.Hour
				compared := 0
				config.Hooks.Compared = func(string, int) { compared++ }
				server := xdstest.DeltaInMemory(t, allowPings)
				inMemory(&config, server.Dial...)
				client := run(t, config)
				server.Next().Send(deltaResponse(t, "n", "v", "a@1"))
				time.Sleep(time.Hour + 100*time.Millisecond)
				stream := server.Next() // the compare has begun
				stream.Receive()
				client.subscribe(subscribe(typeA, h.handle, c.changed...))
				stream.Expect("A +[q]")
				stream.Send(deltaResponse(t, "n", "v", "a@1"))
				time.Sleep(20 * 24 * time.Hour)
				synctest.Wait()
				assert.Equal(t, 1, compared, "a compare of 20 days")
				assert.Equal(t, []string{"a"}, h.names(), "the server has no x any more")
			})
		})
	}
}

// TestFreshStream_CompletesAfterChangeToWildcard: removals since an interrupted response are reported, although the
// subscription is a wildcard by then.
func TestFreshStream_CompletesAfterChangeToWildcard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &cache{}
		config := quietDelta("", subscribe(typeA, h.handle, "a", "x"))
		config.Hooks.Connected = h.begin
		server := xdstest.DeltaInMemory(t, allowPings)
		inMemory(&config, server.Dial...)
		client := run(t, config)
		stream := server.Next()
		require.NoError(t, stream.SetHeader(chunked))
		stream.Receive()
		stream.Exchange(deltaResponse(t, "n", "", "x@1"))
		stream.End(errRestart)
		stream = server.Next()
		require.NoError(t, stream.SetHeader(chunked))
		stream.Receive()
		client.subscribe(subscribe(typeA, h.handle))
		stream.Expect("A +[*] -[a x]")
		stream.Send(deltaResponse(t, "n", "v", "a@1", "b@1"))
		synctest.Wait()
		assert.Equal(t, []string{"a", "b"}, h.names(), "the server has no x any more")
	})
}
