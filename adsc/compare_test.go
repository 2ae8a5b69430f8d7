package adsc_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/adsc"
)

// TestFullCompare_RepairsLostChanges has a server that ignores initial_resource_versions: it does not report removals.
func TestFullCompare_RepairsLostChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler, heard := teller()
		cfg := quiet("", adsc.Subscription{TypeURL: typeA, Handler: handler, Versions: map[string]string{"a": "1", "b": "1", "c": "1"}})
		cfg.Mode, cfg.CompareAfter, cfg.Backoff = adsc.Delta, time.Hour, retries(1)
		var healed []int
		cfg.Hooks.Compared = func(typeURL string, n int) {
			assert.Equal(t, typeA, typeURL)
			healed = append(healed, n)
		}
		var brought []map[string]string
		cfg = bubbled(t, cfg, nil, func(n int, s deltaStream) error {
			first, err := s.Recv()
			if err != nil {
				return err
			}
			brought = append(brought, maps.Clone(first.GetInitialResourceVersions()))
			responses := []string{"c@1", "d@1"}
			switch len(brought) {
			case 1: // sends its resources, without a and b
			case 2: // breaks off in the middle of the compare
				if err := s.SetHeader(chunked); err != nil {
					return err
				}
				r := deltaResponse(t, "n", "", "b@2")
				if err := s.Send(r); err != nil {
					return err
				}
				if _, err := s.Recv(); err != nil {
					return err
				}
				return errRestart
			default: // b differs, a was removed, and e was never reported
				responses = append(responses, "b@2", "e@1")
			}
			if err := s.Send(deltaResponse(t, "n", "v", responses...)); err != nil {
				return err
			}
			pause(s, 24*time.Hour)
			return nil
		}, allowPings)
		stop, result := run(t, cfg)
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		assert.Equal(t, "c@1 d@1 ", <-heard)
		assert.Empty(t, heard)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Equal(t, "b@2 complete more ", <-heard)
		assert.Equal(t, "c@1 d@1 b@2 e@1 complete ", <-heard)
		assert.Equal(t, []map[string]string{{"a": "1", "b": "1", "c": "1"}, nil, nil}, brought)
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		assert.Len(t, brought, 3, "it is done once")
		assert.Equal(t, []int{3}, healed, "a has gone, b is another, and e is new")
		stop()
		require.ErrorIs(t, <-result, context.Canceled)
	})
}

// TestFullStart_NeedsNoCompare: it is as the server said.
func TestFullStart_NeedsNoCompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := quiet("", adsc.Subscription{TypeURL: typeA, Handler: accept})
		config.Mode, config.CompareAfter = adsc.Delta, time.Hour
		config.Hooks.Compared = func(typeURL string, healed int) { t.Error(fmt.Sprint(typeURL, healed)) }
		streams := 0
		config = bubbled(t, config, nil, func(_ int, s deltaStream) error {
			streams++
			if err := s.Send(deltaResponse(t, "n", "v", "a@1")); err != nil {
				return err
			}
			pause(s, 24*time.Hour)
			return nil
		}, allowPings)
		stop, result := run(t, config)
		time.Sleep(10 * time.Hour)
		stop()
		require.ErrorIs(t, <-result, context.Canceled)
		assert.Equal(t, 1, streams)
	})
}

func TestCompare_CompletesAfterChangeOfNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{resources: map[string]string{"a": "1", "x": "1"}}
		cfg := quiet("", adsc.Subscription{TypeURL: typeA, Handler: h.handle, Versions: map[string]string{"a": "1", "x": "1"}})
		cfg.Mode, cfg.Backoff, cfg.CompareAfter = adsc.Delta, retries(5), time.Hour
		compared := 0
		cfg.Hooks.Compared = func(string, int) { compared++ }
		streams := 0
		cfg = bubbled(t, cfg, nil, func(n int, s deltaStream) error { // takes no note of versions
			streams++
			if _, err := s.Recv(); err != nil {
				return err
			}
			if n > 0 {
				if _, err := s.Recv(); err != nil { // the other names
					return err
				}
			}
			if err := s.Send(deltaResponse(t, "n", "v", "a@1")); err != nil {
				return err
			}
			pause(s, 24*time.Hour*30)
			return nil
		}, allowPings)
		client, err := adsc.New(cfg)
		require.NoError(t, err)
		start(t, client)
		time.Sleep(time.Hour + 100*time.Millisecond)
		synctest.Wait()
		require.Equal(t, 2, streams, "the compare has begun")
		require.NoError(t, client.Subscribe(adsc.Subscription{TypeURL: typeA, Names: []string{"*", "q"}, Handler: h.handle}))
		time.Sleep(20 * 24 * time.Hour)
		synctest.Wait()
		t.Log(h.log, "streams", streams)
		assert.Equal(t, 1, compared, "a compare of 20 days")
		assert.Equal(t, []string{"a"}, h.names(), "the server has no x any more")
	})
}

// TestCompareOfNames_CompletesAfterAddedName: the server does not say which names do not exist, and takes no note of versions.
func TestCompareOfNames_CompletesAfterAddedName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{resources: map[string]string{"a": "1", "x": "1"}}
		config := quiet("", adsc.Subscription{
			TypeURL: typeA, Names: []string{"a", "x"}, Handler: h.handle,
			Versions: map[string]string{"a": "1", "x": "1"},
		})
		config.Mode, config.Backoff, config.CompareAfter = adsc.Delta, retries(5), time.Hour
		compared, streams := 0, 0
		config.Hooks.Compared = func(string, int) { compared++ }
		config = bubbled(t, config, nil, func(n int, s deltaStream) error {
			streams++
			if _, err := s.Recv(); err != nil {
				return err
			}
			if n > 0 {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
			if err := s.Send(deltaResponse(t, "n", "v", "a@1")); err != nil {
				return err
			}
			pause(s, 24*time.Hour*30)
			return nil
		}, allowPings)
		c, err := adsc.New(config)
		require.NoError(t, err)
		start(t, c)
		time.Sleep(time.Hour + 100*time.Millisecond)
		synctest.Wait()
		require.Equal(t, 2, streams)
		require.NoError(t, c.Subscribe(adsc.Subscription{TypeURL: typeA, Names: []string{"a", "q", "x"}, Handler: h.handle}))
		time.Sleep(20 * 24 * time.Hour)
		synctest.Wait()
		t.Log(h.log, "streams", streams)
		assert.Equal(t, 1, compared, "a compare of 20 days")
		assert.Equal(t, []string{"a"}, h.names(), "the server has no x any more")
	})
}

// TestFreshStream_CompletesAfterChangeToWildcard: removals since an interrupted response are reported, although the
// subscription is a wildcard by then.
func TestFreshStream_CompletesAfterChangeToWildcard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{}
		sub := adsc.Subscription{TypeURL: typeA, Names: []string{"a", "x"}, Handler: h.handle}
		config := quiet("", sub)
		config.Mode, config.Backoff = adsc.Delta, retries(5)
		var client *adsc.Client
		config = bubbled(t, config, nil, func(n int, s deltaStream) error {
			_ = s.SetHeader(chunked)
			if _, err := s.Recv(); err != nil {
				return err
			}
			if n == 0 {
				_ = s.Send(deltaResponse(t, "n", "", "x@1"))
				_, _ = s.Recv()
				return errRestart
			}
			assert.NoError(t, client.Subscribe(adsc.Subscription{TypeURL: typeA, Handler: h.handle}))
			if _, err := s.Recv(); err != nil { // all
				return err
			}
			pause(s, time.Second)
			if err := s.Send(deltaResponse(t, "n", "v", "a@1", "b@1")); err != nil {
				return err
			}
			pause(s, time.Hour)
			return nil
		}, allowPings)
		config.Hooks.Connected = h.begin
		var err error
		client, err = adsc.New(config)
		require.NoError(t, err)
		start(t, client)
		time.Sleep(time.Minute)
		synctest.Wait()
		t.Log(h.log)
		assert.Equal(t, []string{"a", "b"}, h.names(), "the server has no x any more")
	})
}
