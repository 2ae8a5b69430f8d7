package adsc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/adsc"
)

type deltaRequest = discoveryv3.DeltaDiscoveryRequest

// deltaResponse makes a response of "name@version" pairs and, where they begin with "-", removals.
func deltaResponse(t *testing.T, nonce, version string, items ...string) *discoveryv3.DeltaDiscoveryResponse {
	t.Helper()
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeA, Nonce: nonce, SystemVersionInfo: version}
	for _, item := range items {
		if item[0] == '-' {
			r.RemovedResources = append(r.RemovedResources, item[1:])
			continue
		}
		var name, v string
		_, err := fmt.Sscanf(item, "%1s@%s", &name, &v)
		if err != nil { // without a version
			name = item
		}
		body, err := anypb.New(wrapperspb.String(item))
		require.NoError(t, err)
		r.Resources = append(r.Resources, &discoveryv3.Resource{Name: name, Version: v, Resource: body})
	}
	return r
}

// summary describes a handler's response in short.
func summary(response *adsc.Response) string {
	s := ""
	for _, res := range response.Resources {
		s += res.Name + "@" + res.Version + " "
	}
	for _, name := range response.Removed {
		s += "-" + name + " "
	}
	for _, flag := range []struct {
		set  bool
		name string
	}{{response.Complete, "complete"}, {response.More, "more"}} {
		if flag.set {
			s += flag.name + " "
		}
	}
	return s
}

// teller is a handler that tells, and refuses resources called "x".
func teller() (adsc.Handler, <-chan string) {
	ch := make(chan string, 100)
	return func(_ context.Context, r *adsc.Response) error {
		ch <- summary(r)
		for _, res := range r.Resources {
			if res.Name == "x" {
				return errors.New("x: refused")
			}
		}
		return nil
	}, ch
}

func deltaConfig(address string, subs ...adsc.Subscription) adsc.Config {
	cfg := quiet(address, subs...)
	cfg.Mode = adsc.Delta
	cfg.Backoff = retries(3)
	return cfg
}

// chat sends each response and returns the requests that answer them.
func chat(s deltaStream, requests chan<- *deltaRequest, responses ...*discoveryv3.DeltaDiscoveryResponse) error {
	for _, r := range responses {
		if err := s.Send(r); err != nil {
			return err
		}
		request, err := s.Recv()
		if err != nil {
			return err
		}
		requests <- request
	}
	return nil
}

// lastChat is chat on a stream that the client ends, without another connection.
func lastChat(s deltaStream, requests chan<- *deltaRequest, responses ...*discoveryv3.DeltaDiscoveryResponse) error {
	if err := chat(s, requests, responses...); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

var errRestart = status.Error(codes.Unavailable, "restarting")

func TestDelta_ResumesWithReceivedVersions(t *testing.T) {
	requests := make(chan *deltaRequest, 100)
	address := serveDelta(t, func(n int, s deltaStream) error {
		first, err := s.Recv()
		if err != nil {
			return err
		}
		requests <- first
		if n == 0 {
			err := chat(s, requests,
				deltaResponse(t, "n1", "v", "a@1", "b@1", "c@1"),
				deltaResponse(t, "n2", "v", "a@2", "x@1"),
				deltaResponse(t, "n3", "v", "-b"))
			if err != nil {
				return err
			}
			return errRestart
		}
		return lastChat(s, requests, deltaResponse(t, "n1", "v", "a@3"))
	})
	handler, heard := teller()
	run(t, deltaConfig(address, adsc.Subscription{TypeURL: typeA, Handler: handler}))

	first := receive(t, requests)
	assert.Equal(t, "n1", first.GetNode().GetId())
	assert.Empty(t, first.GetResourceNamesSubscribe(), "that is all")
	assert.Empty(t, first.GetInitialResourceVersions())
	assert.Equal(t, "a@1 b@1 c@1 complete ", receive(t, heard))
	assert.Equal(t, "n1", receive(t, requests).GetResponseNonce())
	assert.Equal(t, "a@2 x@1 ", receive(t, heard))
	nack := receive(t, requests)
	assert.Equal(t, "n2", nack.GetResponseNonce())
	assert.Equal(t, "x: refused", nack.GetErrorDetail().GetMessage())
	assert.Equal(t, "-b ", receive(t, heard))
	assert.Nil(t, receive(t, requests).GetErrorDetail())

	resumed := receive(t, requests)
	assert.Equal(t, "n1", resumed.GetNode().GetId())
	assert.Empty(t, resumed.GetResponseNonce())
	assert.Equal(t, map[string]string{"a": "1", "c": "1"}, resumed.GetInitialResourceVersions(), "rejected resources have no version")
	assert.Equal(t, "a@3 ", receive(t, heard), "not complete: it was resumed")
}

// A handler's success counts, also if the stream ended meanwhile: the server needs the version, or it would not report
// the removal.
func TestDelta_ResumesWithVersionsHandledDuringEnd(t *testing.T) {
	requests := make(chan *deltaRequest, 100)
	handling := make(chan struct{})
	address := serveDelta(t, func(n int, s deltaStream) error {
		first, err := s.Recv()
		if err != nil {
			return err
		}
		requests <- first
		if n > 0 {
			return lastChat(s, requests, deltaResponse(t, "n1", "v", "-b"))
		}
		if err := s.Send(deltaResponse(t, "n1", "v", "a@1", "b@1")); err != nil {
			return err
		}
		<-handling
		return errRestart
	})
	heard := make(chan string, 10)
	handler := func(ctx context.Context, response *adsc.Response) error {
		if len(response.Resources) > 0 {
			close(handling)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond): // the stream has ended meanwhile, and if not, the test cannot fail
			}
		}
		heard <- summary(response)
		return nil
	}
	run(t, deltaConfig(address, adsc.Subscription{TypeURL: typeA, Handler: handler}))
	receive(t, requests)
	assert.Equal(t, "a@1 b@1 complete ", receive(t, heard))
	assert.Equal(t, map[string]string{"a": "1", "b": "1"}, receive(t, requests).GetInitialResourceVersions())
	assert.Equal(t, "-b ", receive(t, heard))
}

func TestChunkedFirstResponse_CompleteWithLastChunk(t *testing.T) {
	requests := make(chan *deltaRequest, 100)
	address := serveDelta(t, func(n int, s deltaStream) error {
		if err := s.SetHeader(metadata.Pairs("xds-delta-chunks", "version-at-end")); err != nil {
			return err
		}
		first, err := s.Recv()
		if err != nil {
			return err
		}
		requests <- first
		if n == 0 { // breaks in the middle
			if err := chat(s, requests, deltaResponse(t, "n1", "", "a@1")); err != nil {
				return err
			}
			return errRestart
		}
		return lastChat(s, requests, deltaResponse(t, "n1", "", "b@1"), deltaResponse(t, "n2", "v", "c@1"), deltaResponse(t, "n3", "v", "d@1"))
	})
	handler, heard := teller()
	var client *adsc.Client
	var synced []bool
	cfg := deltaConfig(address, adsc.Subscription{TypeURL: typeA, Handler: handler})
	cfg.Hooks.Response = func(r *adsc.Response, _ error) { synced = append(synced, client.Synced(r.TypeURL)) }
	client, err := adsc.New(cfg)
	require.NoError(t, err)
	stop, ended := start(t, client)

	receive(t, requests)
	assert.Equal(t, "a@1 complete more ", receive(t, heard))
	receive(t, requests)
	assert.Empty(t, receive(t, requests).GetInitialResourceVersions(), "half of a set is no state to resume from")
	assert.Equal(t, "b@1 complete more ", receive(t, heard))
	assert.Equal(t, "c@1 complete ", receive(t, heard))
	assert.Equal(t, "d@1 ", receive(t, heard))
	for range 3 {
		receive(t, requests) // the last acknowledgement is sent after everything that is looked at here
	}
	stop()
	finished(t, ended)
	assert.Equal(t, []bool{false, false, true, true}, synced)
}

func TestDelta_ChangesNames(t *testing.T) {
	for name, c := range map[string]struct {
		from, to               []string
		subscribe, unsubscribe []string
	}{
		"others":           {[]string{"b", "a"}, []string{"c", "b"}, []string{"c"}, []string{"a"}},
		"from all to some": {nil, []string{"a"}, []string{"a"}, []string{"*"}},
		"from some to all": {[]string{"a"}, nil, []string{"*"}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			requests := make(chan *deltaRequest, 10)
			address := serveDelta(t, func(_ int, s deltaStream) error {
				for {
					r, err := s.Recv()
					if err != nil {
						return err
					}
					requests <- r
				}
			})
			client, err := adsc.New(deltaConfig(address, adsc.Subscription{TypeURL: typeA, Names: c.from, Handler: accept}))
			require.NoError(t, err)
			start(t, client)
			receive(t, requests)
			require.NoError(t, client.Subscribe(adsc.Subscription{TypeURL: typeA, Names: c.to, Handler: accept}))
			r := receive(t, requests)
			assert.Equal(t, c.subscribe, r.GetResourceNamesSubscribe())
			assert.Equal(t, c.unsubscribe, r.GetResourceNamesUnsubscribe())
			require.NoError(t, client.Subscribe(adsc.Subscription{TypeURL: typeB, Handler: accept}))
			assert.Equal(t, typeB, receive(t, requests).GetTypeUrl())
		})
	}
}

func TestAuto_FallsBack(t *testing.T) {
	t.Run("from a server without delta", func(t *testing.T) {
		address := serve(t, func(_ int, s stream) error {
			if err := s.Send(response(t, typeA, "v", "n", "a")); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		})
		handler, heard := teller()
		cfg := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: handler})
		cfg.Mode = adsc.Auto
		run(t, cfg)
		assert.Equal(t, "@ complete ", receive(t, heard))
	})
	t.Run("from a delta without versions", func(t *testing.T) {
		address := serveBoth(t, func(_ int, s stream) error {
			if err := s.Send(response(t, typeA, "v", "n", "a")); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		}, func(_ int, s deltaStream) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			if err := s.Send(deltaResponse(t, "n", "v", "a")); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		})
		handler, heard := teller()
		cfg := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: handler})
		cfg.Mode = adsc.Auto
		run(t, cfg)
		assert.Equal(t, "@ complete ", receive(t, heard), "the handler is spared the other")
	})
	t.Run("but not from one that refuses for another reason", func(t *testing.T) {
		address := serveBoth(t, nil, func(int, deltaStream) error { return status.Error(codes.PermissionDenied, "go away") })
		cfg := quiet(address, adsc.Subscription{TypeURL: typeA, Handler: accept})
		cfg.Mode = adsc.Auto
		_, result := run(t, cfg)
		err := receive(t, result)
		require.ErrorContains(t, err, "go away")
		assert.True(t, adsc.Denied(err))
		assert.False(t, adsc.Exhausted(err))
	})
}

// TestRejectedNames_KeepOtherVersions: resources rejected by name have no version, and the others have.
func TestRejectedNames_KeepOtherVersions(t *testing.T) {
	requests := make(chan *deltaRequest, 100)
	address := serveDelta(t, func(n int, s deltaStream) error {
		first, err := s.Recv()
		if err != nil {
			return err
		}
		requests <- first
		if n > 0 {
			<-s.Context().Done()
			return nil
		}
		if err := chat(s, requests, deltaResponse(t, "n1", "v", "a@1", "x@1"),
			deltaResponse(t, "n2", "v", "a@2", "b@1", "x@2", "-c")); err != nil {
			return err
		}
		return errRestart
	})
	rejecting := false
	run(t, deltaConfig(address, adsc.Subscription{TypeURL: typeA, Handler: func(context.Context, *adsc.Response) error {
		if !rejecting {
			rejecting = true
			return nil
		}
		return fmt.Errorf("wrapped: %w", &adsc.RejectedError{Names: []string{"x"}, Err: errRefused})
	}}))
	receive(t, requests)
	assert.Nil(t, receive(t, requests).GetErrorDetail())
	assert.Contains(t, receive(t, requests).GetErrorDetail().GetMessage(), errRefused.Error())
	assert.Equal(t, map[string]string{"a": "2", "b": "1", "x": "1"}, receive(t, requests).GetInitialResourceVersions())
}

// TestNameDroppedInHandler_HasNoVersion: the caller need not have it any more.
func TestNameDroppedInHandler_HasNoVersion(t *testing.T) {
	firsts := make(chan *deltaRequest, 2)
	address := serveDelta(t, func(n int, s deltaStream) error {
		first, err := s.Recv()
		if err != nil {
			return err
		}
		firsts <- first
		if n > 0 {
			<-s.Context().Done()
			return nil
		}
		if err := s.Send(deltaResponse(t, "n1", "v", "a@1", "b@1")); err != nil {
			return err
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
		return errRestart
	})
	var client *adsc.Client
	want := func(names ...string) adsc.Subscription {
		return adsc.Subscription{TypeURL: typeA, Names: names, Handler: func(context.Context, *adsc.Response) error {
			assert.NoError(t, client.Subscribe(adsc.Subscription{TypeURL: typeA, Names: []string{"b"}, Handler: accept}))
			return client.Subscribe(adsc.Subscription{TypeURL: typeA, Names: []string{"a", "b"}, Handler: accept})
		}}
	}
	client, err := adsc.New(deltaConfig(address, want("a", "b")))
	require.NoError(t, err)
	start(t, client)
	receive(t, firsts)
	resumed := receive(t, firsts)
	assert.Equal(t, []string{"a", "b"}, resumed.GetResourceNamesSubscribe())
	assert.Equal(t, map[string]string{"b": "1"}, resumed.GetInitialResourceVersions())
}

// TestRejectedFirstSet_NotResumed: after a rejected complete set the client cannot know removals.
func TestRejectedFirstSet_NotResumed(t *testing.T) {
	requests := make(chan *deltaRequest, 100)
	address := serveDelta(t, func(n int, s deltaStream) error {
		first, err := s.Recv()
		if err != nil {
			return err
		}
		requests <- first
		if n > 0 {
			<-s.Context().Done()
			return nil
		}
		if err := chat(s, requests, deltaResponse(t, "n1", "v", "a@1", "x@1"), deltaResponse(t, "n2", "v", "b@1")); err != nil {
			return err
		}
		return errRestart
	})
	rejected := false
	run(t, deltaConfig(address, adsc.Subscription{TypeURL: typeA, Handler: func(context.Context, *adsc.Response) error {
		if !rejected {
			rejected = true
			return errRefused
		}
		return nil
	}}))
	receive(t, requests)
	assert.NotNil(t, receive(t, requests).GetErrorDetail())
	assert.Nil(t, receive(t, requests).GetErrorDetail())
	assert.Empty(t, receive(t, requests).GetInitialResourceVersions())
}

// TestNameDroppedBesideWildcard_KeepsCompleteness: the first response still has every resource.
func TestNameDroppedBesideWildcard_KeepsCompleteness(t *testing.T) {
	subscribed, dropped := make(chan *deltaRequest, 1), make(chan *deltaRequest, 1)
	address := serveDelta(t, func(_ int, s deltaStream) error {
		for _, requests := range []chan *deltaRequest{subscribed, dropped} {
			r, err := s.Recv()
			if err != nil {
				return err
			}
			requests <- r
		}
		if err := s.Send(deltaResponse(t, "n1", "v", "a@1")); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	})
	complete := make(chan bool, 1)
	sub := adsc.Subscription{TypeURL: typeA, Names: []string{"*", "a"}, Handler: func(_ context.Context, r *adsc.Response) error {
		complete <- r.Complete
		return nil
	}}
	client, err := adsc.New(deltaConfig(address, sub))
	require.NoError(t, err)
	start(t, client)
	receive(t, subscribed)
	sub.Names = nil
	require.NoError(t, client.Subscribe(sub))
	assert.Equal(t, []string{"a"}, receive(t, dropped).GetResourceNamesUnsubscribe())
	assert.True(t, receive(t, complete))
}
