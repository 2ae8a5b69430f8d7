package adsc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/adsc"
	"tributary/internal/xdstest"
)

func TestDelta_ResumesWithReceivedVersions(t *testing.T) {
	server := xdstest.ListenDelta(t)
	handler, summaries := recorder()
	run(t, quietDelta(server.Address, subscribe(typeA, handler)))
	stream := server.Next()
	stream.Expect("node n1 A")
	for _, step := range []struct{ nonce, items, summaries, reply string }{
		{"n1", "a@1 b@1 c@1", "a@1 b@1 c@1 complete ", "A nonce n1"},
		{"n2", "a@2 x@1", "a@2 x@1 ", "A nonce n2 error InvalidArgument: x: refused"},
		{"n3", "-b", "-b ", "A nonce n3"},
	} {
		stream.Send(deltaResponse(t, step.nonce, "v", strings.Fields(step.items)...))
		assert.Equal(t, step.summaries, xdstest.Receive(t, summaries))
		stream.Expect(step.reply)
	}
	stream.End(errRestart)
	stream = server.Next()
	stream.Expect("node n1 A has map[a:1 c:1]") // rejected resources have no version
	stream.Send(deltaResponse(t, "n1", "v", "a@3"))
	assert.Equal(t, "a@3 ", xdstest.Receive(t, summaries), "not complete: it was resumed")
}

// If the stream ends while a handler runs, its success counts: without the version in the next request, the server would
// not report the removal.
func TestDelta_ResumesWithVersionsHandledDuringEnd(t *testing.T) {
	server := xdstest.ListenDelta(t)
	handling, summaries := make(chan struct{}), make(chan string, 10)
	run(t, quietDelta(server.Address, subscribe(typeA, func(ctx context.Context, response *adsc.Response) error {
		if len(response.Resources) > 0 {
			close(handling)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond): // the stream has ended meanwhile, and if not, the test cannot fail
			}
		}
		summaries <- summary(response)
		return nil
	})))
	stream := server.Next()
	stream.Send(deltaResponse(t, "n1", "v", "a@1", "b@1"))
	<-handling
	stream.End(errRestart)
	assert.Equal(t, "a@1 b@1 complete ", xdstest.Receive(t, summaries))
	stream = server.Next()
	stream.Expect("node n1 A has map[a:1 b:1]")
	stream.Send(deltaResponse(t, "n1", "v", "-b"))
	assert.Equal(t, "-b ", xdstest.Receive(t, summaries))
}

func TestChunkedFirstResponse_CompleteWithLastChunk(t *testing.T) {
	server := xdstest.ListenDelta(t)
	handler, summaries := recorder()
	var client *adsc.Client
	var synced []bool
	config := quietDelta(server.Address, subscribe(typeA, handler))
	config.Hooks.Response = func(r *adsc.Response, _ error) { synced = append(synced, client.Synced(r.TypeURL)) }
	client, err := adsc.New(config)
	require.NoError(t, err)
	start(t, client)

	stream := server.Next() // breaks in the middle
	require.NoError(t, stream.SetHeader(chunked))
	stream.Receive()
	stream.Exchange(deltaResponse(t, "n1", "", "a@1"))
	stream.End(errRestart)
	stream = server.Next()
	require.NoError(t, stream.SetHeader(chunked))
	stream.Expect("node n1 A") // half of a set is no state to resume from
	stream.Exchange(deltaResponse(t, "n1", "", "b@1"))
	stream.Exchange(deltaResponse(t, "n2", "v", "c@1"))
	stream.Exchange(deltaResponse(t, "n3", "v", "d@1"))
	for _, want := range []string{"a@1 complete more ", "b@1 complete more ", "c@1 complete ", "d@1 "} {
		assert.Equal(t, want, xdstest.Receive(t, summaries))
	}
	assert.Equal(t, []bool{false, false, true, true}, synced)
}

func TestDelta_ChangesNames(t *testing.T) {
	for name, c := range map[string]struct {
		from, to []string
		want     string
	}{
		"others":           {[]string{"b", "a"}, []string{"c", "b"}, "A +[c] -[a]"},
		"from all to some": {nil, []string{"a"}, "A +[a] -[*]"},
		"from some to all": {[]string{"a"}, nil, "A +[*] -[a]"},
	} {
		t.Run(name, func(t *testing.T) {
			server := xdstest.ListenDelta(t)
			client := run(t, quietDelta(server.Address, subscribe(typeA, accept, c.from...)))
			stream := server.Next()
			stream.Receive()
			client.subscribe(subscribe(typeA, accept, c.to...))
			stream.Expect(c.want)
			client.subscribe(subscribe(typeB, accept))
			stream.Expect("B")
		})
	}
}

func TestAuto_FallsBack(t *testing.T) {
	t.Run("from a server without delta", func(t *testing.T) {
		handler, summaries := recorder()
		config := quiet(respondsOnce(t).Serve(t), subscribe(typeA, handler))
		config.Mode = adsc.Auto
		run(t, config)
		assert.Equal(t, "@ complete ", xdstest.Receive(t, summaries))
	})
	t.Run("from a delta without versions", func(t *testing.T) {
		server := respondsOnce(t)
		server.Delta = func(_ int, s xdstest.DeltaStream) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			if err := s.Send(deltaResponse(t, "n", "v", "a")); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		}
		handler, summaries := recorder()
		config := quiet(server.Serve(t), subscribe(typeA, handler))
		config.Mode = adsc.Auto
		run(t, config)
		assert.Equal(t, "@ complete ", xdstest.Receive(t, summaries), "the handler is spared the other")
	})
	t.Run("but not from one that refuses for another reason", func(t *testing.T) {
		server := xdstest.Server{Delta: func(int, xdstest.DeltaStream) error {
			return status.Error(codes.PermissionDenied, "go away")
		}}
		config := quiet(server.Serve(t), subscribe(typeA, accept))
		config.Mode = adsc.Auto
		err := receive(t, run(t, config).ended)
		require.ErrorContains(t, err, "go away")
		assert.True(t, adsc.Denied(err))
		assert.False(t, adsc.Exhausted(err))
	})
}

// TestRejections_KeepVersions has a handler that rejects some responses: the next stream has the versions of the other
// resources.
func TestRejections_KeepVersions(t *testing.T) {
	byName := fmt.Errorf("wrapped: %w", &adsc.RejectedError{Names: []string{"x"}, Err: errRefused})
	for name, c := range map[string]struct {
		results   []error
		responses [][]string
		want      string
	}{
		"of resources rejected by name": {
			[]error{nil, byName}, [][]string{{"a@1", "x@1"}, {"a@2", "b@1", "x@2", "-c"}}, "node n1 A has map[a:2 b:1 x:1]",
		},
		"but not of a first set rejected as a whole, which hides removals": {
			[]error{errRefused, nil}, [][]string{{"a@1", "x@1"}, {"b@1"}}, "node n1 A",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := xdstest.ListenDelta(t)
			handled := 0
			run(t, quietDelta(server.Address, subscribe(typeA, func(context.Context, *adsc.Response) error {
				handled++
				return c.results[handled-1]
			})))
			stream := server.Next()
			stream.Receive()
			for i, items := range c.responses {
				detail := stream.Exchange(deltaResponse(t, "n", "v", items...)).GetErrorDetail()
				require.Equal(t, c.results[i] != nil, detail != nil)
				if detail != nil {
					require.Contains(t, detail.GetMessage(), errRefused.Error())
				}
			}
			stream.End(errRestart)
			server.Next().Expect(c.want)
		})
	}
}

// TestNameDroppedInHandler_HasNoVersion: the caller may have forgotten the resource with the name.
func TestNameDroppedInHandler_HasNoVersion(t *testing.T) {
	server := xdstest.ListenDelta(t)
	var client *adsc.Client
	client, err := adsc.New(quietDelta(server.Address, subscribe(typeA, func(context.Context, *adsc.Response) error {
		assert.NoError(t, client.Subscribe(subscribe(typeA, accept, "b")))
		return client.Subscribe(subscribe(typeA, accept, "a", "b"))
	}, "a", "b")))
	require.NoError(t, err)
	start(t, client)
	stream := server.Next()
	stream.Receive()
	stream.Exchange(deltaResponse(t, "n1", "v", "a@1", "b@1"))
	stream.End(errRestart)
	server.Next().Expect("node n1 A +[a b] has map[b:1]")
}

// TestNameDroppedBesideWildcard_KeepsCompleteness: the first response still has every resource.
func TestNameDroppedBesideWildcard_KeepsCompleteness(t *testing.T) {
	server := xdstest.ListenDelta(t)
	handler, summaries := recorder()
	client := run(t, quietDelta(server.Address, subscribe(typeA, handler, "*", "a")))
	stream := server.Next()
	stream.Receive()
	client.subscribe(subscribe(typeA, handler))
	stream.Expect("A -[a]")
	stream.Send(deltaResponse(t, "n1", "v", "a@1"))
	assert.Equal(t, "a@1 complete ", xdstest.Receive(t, summaries))
}
