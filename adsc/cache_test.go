package adsc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/adsc"
)

func TestCacheIsHandedOutAtTheStartAndResumedFrom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	requests := make(chan *deltaRequest, 100)
	address := serveDelta(t, func(n int, s deltaStream) error {
		first, err := s.Recv()
		if err != nil {
			return err
		}
		requests <- first
		if n == 0 {
			return chat(s, requests, deltaResponse(t, "n1", "v", "a@1", "b@1", "c@1"), deltaResponse(t, "n2", "v", "a@2", "-b"))
		}
		return chat(s, requests, deltaResponse(t, "n1", "v"))
	})
	cfg := func() (adsc.Config, <-chan string) {
		handler, heard := teller()
		c := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: handler})
		c.Mode, c.CacheDir = adsc.Delta, dir
		return c, heard
	}
	first, heard := cfg()
	_, ended := run(t, first)
	finished(t, ended)
	assert.Equal(t, "a@1 b@1 c@1 complete ", receive(t, heard))

	file := filepath.Join(dir, "example.io_v1_A.jsonl")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 6, strings.Count(string(text), "\n"), "a header, three resources, and what changed")
	var line struct{ Object struct{ Value string } }
	require.NoError(t, json.Unmarshal([]byte(strings.Split(string(text), "\n")[1]), &line))
	require.Equal(t, "a@1", line.Object.Value, "a person can read it")
	require.NoError(t, os.WriteFile(file, append(text, `{"name":"d","vers`...), 0o600)) // the power went

	for len(requests) > 0 {
		<-requests
	}
	second, heard := cfg()
	_, ended = run(t, second)
	assert.Equal(t, "a@2 c@1 complete cached ", receive(t, heard))
	assert.Equal(t, map[string]string{"a": "2", "c": "1"}, receive(t, requests).GetInitialResourceVersions())
	assert.Empty(t, receive(t, heard))
	finished(t, ended)
	for len(requests) > 0 {
		<-requests
	}

	t.Run("but not to somebody who has more", func(t *testing.T) {
		knowing, heard := cfg()
		knowing.Subscriptions[0].Versions = map[string]string{"e": "1"}
		_, ended := run(t, knowing)
		assert.Equal(t, map[string]string{"e": "1"}, receive(t, requests).GetInitialResourceVersions())
		assert.Empty(t, receive(t, heard))
		finished(t, ended)
		for len(requests) > 0 {
			<-requests
		}
	})
	t.Run("but not if it is not to be read", func(t *testing.T) {
		require.NoError(t, os.WriteFile(file, []byte("{}\nnonsense\n"), 0o600))
		third, heard := cfg()
		_, ended := run(t, third)
		assert.Equal(t, "complete ", receive(t, heard), "what the server says is all there is")
		finished(t, ended)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(text), "nonsense", "it is replaced")
	})
}

func TestCacheOfAStateOfTheWorldIsReplacedByEachResponse(t *testing.T) {
	dir := t.TempDir()
	script := func(contents ...string) script {
		return func(_ int, s stream) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			for i, c := range contents {
				if err := s.Send(response(t, typeA, fmt.Sprint("v", i), fmt.Sprint("n", i), strings.Split(c, " ")...)); err != nil {
					return err
				}
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	handler, heard := teller()
	cfg := quiet(serve(t, script("a b c", "a d")), adsc.Subscription{TypeURL: typeA, Handler: handler})
	cfg.CacheDir = dir
	_, ended := run(t, cfg)
	finished(t, ended)
	assert.Equal(t, "@ @ @ complete ", receive(t, heard))
	assert.Equal(t, "@ @ complete ", receive(t, heard))

	cfg.Addresses = []string{"127.0.0.1:1"}
	_, ended = run(t, cfg)
	finished(t, ended)
	assert.Equal(t, "@ @ complete cached ", receive(t, heard))
}

// finished waits until a client has nothing left to try.
func finished(t *testing.T, ended <-chan error) {
	t.Helper()
	require.Error(t, receive(t, ended))
}

// TestCacheDoesNotGrow changes one resource many times.
func TestCacheDoesNotGrow(t *testing.T) {
	dir := t.TempDir()
	const changes = 2000
	address := serveDelta(t, func(_ int, s deltaStream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		for i := range changes {
			if err := s.Send(deltaResponse(t, fmt.Sprint(i), "v", fmt.Sprintf("a@%d", i), fmt.Sprintf("b@%d", i), "-c")); err != nil {
				return err
			}
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
		return nil
	})
	cfg := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: accept})
	cfg.Mode, cfg.CacheDir = adsc.Delta, dir
	_, ended := run(t, cfg)
	finished(t, ended)
	text, err := os.ReadFile(filepath.Join(dir, "example.io_v1_A.jsonl"))
	require.NoError(t, err)
	require.Less(t, strings.Count(string(text), "\n"), changes)
	handler, heard := teller()
	cfg = quiet("127.0.0.1:1", adsc.Subscription{TypeURL: typeA, Handler: handler})
	cfg.Mode, cfg.CacheDir = adsc.Delta, dir
	run(t, cfg)
	assert.Equal(t, fmt.Sprintf("a@%d b@%[1]d complete cached ", changes-1), receive(t, heard))
}

func TestCacheThatCannotBeWrittenIsNoReasonToStop(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	requests := make(chan *deltaRequest, 10)
	address := serveDelta(t, func(_ int, s deltaStream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		return chat(s, requests, deltaResponse(t, "n1", "v", "a@1"), deltaResponse(t, "n2", "v", "a@2"))
	})
	handler, heard := teller()
	cfg := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: handler})
	cfg.Mode, cfg.CacheDir = adsc.Delta, blocked
	run(t, cfg)
	assert.Equal(t, "a@1 complete ", receive(t, heard))
	assert.Equal(t, "a@2 ", receive(t, heard))
}

func TestACacheDirectoryIsThatOfOneClient(t *testing.T) {
	silent := serve(t, func(_ int, s stream) error {
		<-s.Context().Done()
		return nil
	})
	cfg := quiet(silent, adsc.Subscription{TypeURL: typeA, Handler: accept})
	cfg.CacheDir = t.TempDir()
	opened := make(chan string, 1)
	cfg.Hooks.Opened = func(server string) { opened <- server }
	stop, first := run(t, cfg)
	receive(t, opened)
	_, second := run(t, cfg)
	require.ErrorContains(t, receive(t, second), cfg.CacheDir+": it is in use by another client")
	stop()
	require.ErrorIs(t, receive(t, first), context.Canceled)
	run(t, cfg)
	receive(t, opened)
}

// TestWhatWasRejectedIsNotCached: a client that starts from the cache has what its handler took last.
func TestWhatWasRejectedIsNotCached(t *testing.T) {
	dir := t.TempDir()
	requests := make(chan *deltaRequest, 10)
	address := serveDelta(t, func(_ int, s deltaStream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		return chat(s, requests, deltaResponse(t, "n1", "v", "a@1", "b@1"), deltaResponse(t, "n2", "v", "a@2", "x@1", "-b"))
	})
	handler, heard := teller()
	cfg := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: handler})
	cfg.Mode, cfg.CacheDir = adsc.Delta, dir
	_, ended := run(t, cfg)
	finished(t, ended)
	receive(t, heard)
	receive(t, heard)
	cfg.Addresses = []string{"127.0.0.1:1"}
	_, ended = run(t, cfg)
	finished(t, ended)
	assert.Equal(t, "a@1 b@1 complete cached ", receive(t, heard))
}

func TestACacheOfOneVariantIsNotGoneOnWithInTheOther(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		once := func(cfg adsc.Config) {
			ctx, cancel := context.WithCancel(t.Context())
			c, err := adsc.New(cfg)
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			time.Sleep(time.Second)
			cancel()
			require.ErrorIs(t, <-done, context.Canceled)
		}
		cfg := quiet("", adsc.Subscription{TypeURL: typeA, Handler: accept})
		cfg.CacheDir, cfg.Backoff = dir, retries(100)
		once(bubbled(t, cfg, func(_ int, s stream) error {
			_ = s.Send(response(t, typeA, "v", "n", "a@1"))
			pause(s, time.Hour)
			return nil
		}, nil))
		// The caller has it elsewhere, too, and the server has learnt delta.
		cfg.Mode = adsc.Delta
		cfg.Subscriptions[0].Versions = map[string]string{"a": "1"}
		once(bubbled(t, cfg, nil, func(_ int, s deltaStream) error {
			_ = s.Send(deltaResponse(t, "n", "v", "a@2"))
			_, _ = s.Recv()
			_ = s.Send(deltaResponse(t, "n", "v", "a@3"))
			pause(s, time.Hour)
			return nil
		}))
		cfg.Subscriptions[0].Versions = nil
		var got []string
		cfg.Subscriptions[0].Handler = func(_ context.Context, r *adsc.Response) error { got = values(t, r); return nil }
		once(bubbled(t, cfg, nil, func(_ int, s deltaStream) error { pause(s, time.Hour); return nil }))
		assert.Equal(t, []string{"a@3"}, got)
	})
}

// TestAFollowerBeforeItsParentIsRestored: a cache has what is followed also if it is subscribed to first.
func TestAFollowerBeforeItsParentIsRestored(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		got := []string{}
		cfg := quiet("", adsc.Subscription{TypeURL: adsc.EndpointType, Follow: true, Handler: func(_ context.Context, r *adsc.Response) error {
			for _, res := range r.Resources {
				got = append(got, res.Name)
			}
			return nil
		}}, adsc.Subscription{TypeURL: adsc.ClusterType, Handler: accept})
		cfg.Mode, cfg.Backoff, cfg.CacheDir = adsc.Delta, retries(100), dir
		for i := range 2 {
			got = nil
			c2 := bubbled(t, cfg, nil, func(_ int, s deltaStream) error {
				if i == 1 {
					pause(s, time.Hour) // says nothing
					return nil
				}
				for {
					r, err := s.Recv()
					if err != nil {
						return err
					}
					if r.GetResponseNonce() != "" {
						continue
					}
					out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: r.GetTypeUrl(), Nonce: "n", SystemVersionInfo: "v"}
					if r.GetTypeUrl() == adsc.ClusterType {
						out.Resources = []*discoveryv3.Resource{{Name: "c", Version: "1", Resource: edsCluster(t, "c", "")}}
					} else {
						out.Resources = []*discoveryv3.Resource{{Name: "c", Version: "1", Resource: edsCluster(t, "c", "")}}
					}
					if err := s.Send(out); err != nil {
						return err
					}
				}
			}, allowPings)
			ctx, cancel := context.WithCancel(t.Context())
			c, err := adsc.New(c2)
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			time.Sleep(time.Minute)
			cancel()
			require.ErrorIs(t, <-done, context.Canceled)
			assert.True(t, slices.Contains(got, "c"), "run %d", i)
		}
	})
}

// TestAChangeOfFewNamesDoesNotRewriteTheFile: a change costs what it is large, also if fewer names are wanted than the file has.
func TestAChangeOfFewNamesDoesNotRewriteTheFile(t *testing.T) {
	dir := t.TempDir()
	const n = 2_000
	send := make(chan *discoveryv3.DeltaDiscoveryResponse)
	address := serveDelta(t, func(_ int, s deltaStream) error {
		for {
			select {
			case r := <-send:
				if err := s.Send(r); err != nil {
					return err
				}
			case <-s.Context().Done():
				return nil
			}
		}
	})
	handled := make(chan struct{}, 1)
	cfg := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: accept})
	cfg.Mode, cfg.CacheDir = adsc.Delta, dir
	cfg.Hooks.Response = func(*adsc.Response, error) { handled <- struct{}{} }
	c, err := adsc.New(cfg)
	require.NoError(t, err)
	start(t, c)
	all := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeA, Nonce: "n", SystemVersionInfo: "v"}
	body := packed(t, wrapperspb.String("b"))
	for i := range n {
		all.Resources = append(all.Resources, &discoveryv3.Resource{Name: fmt.Sprint("r", i), Version: "1", Resource: body})
	}
	one := &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: typeA, Nonce: "m", SystemVersionInfo: "v",
		Resources: []*discoveryv3.Resource{{Name: "r1", Version: "2", Resource: body}},
	}
	send <- all
	receive(t, handled)
	file := filepath.Join(dir, strings.ReplaceAll(typeA, "/", "_")+".jsonl")
	rewrites := func() (count int) {
		last, err := os.Stat(file)
		require.NoError(t, err)
		for range 20 {
			send <- one
			receive(t, handled)
			now, err := os.Stat(file)
			require.NoError(t, err)
			if !os.SameFile(now, last) {
				count++
			}
			last = now
		}
		return count
	}
	assert.Zero(t, rewrites(), "all are wanted")
	require.NoError(t, c.Subscribe(adsc.Subscription{TypeURL: typeA, Names: []string{"r1"}, Handler: accept}))
	assert.Zero(t, rewrites(), "one is wanted")
}
