package adsc_test

import (
	"context"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/adsc"
)

// TestSotW_ChangesNames: on a stream with an earlier name, an empty list unsubscribes.
func TestSotW_ChangesNames(t *testing.T) {
	wildcard := []string(nil)
	for name, c := range map[string]struct {
		steps [][]string // subscribed names, in order
		want  [][]string // requested names
	}{
		"others":                {[][]string{{"b", "a"}, {"c", "b"}}, [][]string{{"a", "b"}, {"b", "c"}}},
		"from all to some":      {[][]string{wildcard, {"a"}}, [][]string{nil, {"a"}}},
		"from some to all":      {[][]string{{"a"}, wildcard}, [][]string{{"a"}, {"*"}}},
		"to all and back":       {[][]string{wildcard, {"a"}, wildcard, {"a"}}, [][]string{nil, {"a"}, {"*"}, {"a"}}},
		"all, and some by name": {[][]string{{"*", "a"}, {"*"}}, [][]string{{"*", "a"}, {"*"}}},
	} {
		t.Run(name, func(t *testing.T) {
			requests := make(chan *discoveryv3.DiscoveryRequest, 10)
			address := serve(t, func(_ int, s stream) error {
				for {
					discoveryRequest, err := s.Recv()
					if err != nil {
						return err
					}
					requests <- discoveryRequest
				}
			})
			client, err := adsc.New(quiet(address, adsc.Subscription{TypeURL: typeA, Names: c.steps[0], Handler: accept}))
			require.NoError(t, err)
			start(t, client)
			assert.Equal(t, c.want[0], receive(t, requests).GetResourceNames())
			for i, names := range c.steps[1:] {
				require.NoError(t, client.Subscribe(adsc.Subscription{TypeURL: typeA, Names: names, Handler: accept}))
				assert.Equal(t, c.want[i+1], receive(t, requests).GetResourceNames())
			}
		})
	}
}

// TestVersion_NotReusedForOtherNames: the server would send no response for a version that it knows.
func TestVersion_NotReusedForOtherNames(t *testing.T) {
	firsts := make(chan *discoveryv3.DiscoveryRequest, 2)
	change := make(chan struct{})
	address := serve(t, func(n int, s stream) error {
		discoveryRequest, err := s.Recv()
		if err != nil {
			return err
		}
		firsts <- discoveryRequest
		if n > 0 {
			<-s.Context().Done()
			return nil
		}
		if err := s.Send(response(t, typeA, "v7", "n7", "a")); err != nil {
			return err
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
		<-change
		return errRestart
	})
	config := quiet(address, adsc.Subscription{TypeURL: typeA, Names: []string{"a"}, Handler: accept})
	config.Backoff = retries(1)
	var client *adsc.Client
	config.Hooks.Failed = func(error, time.Duration) {
		assert.NoError(t, client.Subscribe(adsc.Subscription{TypeURL: typeA, Names: []string{"a", "b"}, Handler: accept}))
	}
	client, err := adsc.New(config)
	require.NoError(t, err)
	start(t, client)
	receive(t, firsts)
	close(change)
	resumed := receive(t, firsts)
	assert.Equal(t, []string{"a", "b"}, resumed.GetResourceNames())
	assert.Empty(t, resumed.GetVersionInfo())
}

// TestVersion_OfResponseBeforeChangedNames: the server may have written it for those of before.
func TestVersion_OfResponseBeforeChangedNames(t *testing.T) {
	firsts := make(chan *discoveryv3.DiscoveryRequest, 2)
	changed := make(chan struct{})
	address := serve(t, func(n int, s stream) error {
		first, err := s.Recv()
		if err != nil {
			return err
		}
		firsts <- first
		if n > 0 {
			<-s.Context().Done()
			return nil
		}
		<-changed
		if err := s.Send(response(t, typeA, "v7", "n7", "a")); err != nil {
			return err
		}
		for {
			discoveryRequest, err := s.Recv()
			if err != nil {
				return err
			}
			if discoveryRequest.GetResponseNonce() == "n7" {
				assert.Equal(t, "v7", discoveryRequest.GetVersionInfo())
				return errRestart
			}
		}
	})
	cfg := quiet(address, adsc.Subscription{TypeURL: typeA, Names: []string{"a"}, Handler: accept})
	cfg.Backoff = retries(1)
	client, err := adsc.New(cfg)
	require.NoError(t, err)
	start(t, client)
	receive(t, firsts)
	require.NoError(t, client.Subscribe(adsc.Subscription{TypeURL: typeA, Names: []string{"a", "b"}, Handler: accept}))
	close(changed)
	resumed := receive(t, firsts)
	assert.Equal(t, []string{"a", "b"}, resumed.GetResourceNames())
	assert.Empty(t, resumed.GetVersionInfo())
}

// TestRejectedVersion_NotResumed: the server would think that it was taken.
func TestRejectedVersion_NotResumed(t *testing.T) {
	firsts := make(chan *discoveryv3.DiscoveryRequest, 2)
	address := serve(t, func(n int, s stream) error {
		first, err := s.Recv()
		if err != nil {
			return err
		}
		firsts <- first
		if n > 0 {
			<-s.Context().Done()
			return nil
		}
		for _, version := range []string{"good", "bad"} {
			if err := s.Send(response(t, typeA, version, version, version)); err != nil {
				return err
			}
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
		return errRestart
	})
	config := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: func(_ context.Context, r *adsc.Response) error {
		if r.Version == "bad" {
			return errRefused
		}
		return nil
	}})
	config.Backoff = retries(1)
	run(t, config)
	receive(t, firsts)
	assert.Equal(t, "good", receive(t, firsts).GetVersionInfo())
}
