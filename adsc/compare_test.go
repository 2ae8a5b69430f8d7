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

// TestAFullCompareHeals has a server that takes no note of versions that a client brings along: it says nothing of what
// has gone.
func TestAFullCompareHeals(t *testing.T) {
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
			case 1: // says what is there, and of a and b nothing
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
			default: // b differs, a has gone, and nobody had told of e
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

// TestWhatBeganInFullIsNotCompared: it is as the server said.
func TestWhatBeganInFullIsNotCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet("", adsc.Subscription{TypeURL: typeA, Handler: accept})
		cfg.Mode, cfg.CompareAfter = adsc.Delta, time.Hour
		cfg.Hooks.Compared = func(typeURL string, healed int) { t.Error(fmt.Sprint(typeURL, healed)) }
		streams := 0
		cfg = bubbled(t, cfg, nil, func(_ int, s deltaStream) error {
			streams++
			if err := s.Send(deltaResponse(t, "n", "v", "a@1")); err != nil {
				return err
			}
			pause(s, 24*time.Hour)
			return nil
		}, allowPings)
		stop, result := run(t, cfg)
		time.Sleep(10 * time.Hour)
		stop()
		require.ErrorIs(t, <-result, context.Canceled)
		assert.Equal(t, 1, streams)
	})
}
