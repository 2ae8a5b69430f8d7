package adsc_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tributary/adsc"
	"tributary/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	typeA = "example.io/v1/A"
	typeB = "example.io/v1/B"
)

var (
	errRefused = errors.New("resource b: refused")
	errRestart = status.Error(codes.Unavailable, "restarting")
)

// allowPings is the option of a server that takes pings as often as our clients send them.
var allowPings = grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second})

// chunked is the header of a server that marks the last response of several.
var chunked = metadata.Pairs("xds-delta-chunks", "version-at-end")

func accept(context.Context, *adsc.Response) error { return nil }

func subscribe(typeURL string, handler adsc.Handler, names ...string) adsc.Subscription {
	return adsc.Subscription{TypeURL: typeURL, Names: names, Handler: handler}
}

// quiet is a configuration with one server and no log. Its client gives up after the first failure.
func quiet(address string, subs ...adsc.Subscription) adsc.Config {
	return adsc.Config{
		Addresses:     []string{address},
		Node:          &corev3.Node{Id: "n1"},
		Subscriptions: subs,
		Backoff:       retries(0),
		Log:           slog.New(slog.DiscardHandler),
	}
}

// quietDelta is quiet for delta, with retries.
func quietDelta(address string, subs ...adsc.Subscription) adsc.Config {
	config := quiet(address, subs...)
	config.Mode, config.Backoff = adsc.Delta, retries(5)
	return config
}

// inMemory makes config that of a client of a server without a network.
func inMemory(config *adsc.Config, dial ...grpc.DialOption) {
	config.Addresses, config.DialOptions = []string{"127.0.0.1:1"}, append(config.DialOptions, dial...)
}

// retries is a backoff that allows n retries without delay.
func retries(n int) func() backoff.BackOff {
	return func() backoff.BackOff {
		if n == 0 {
			return &backoff.StopBackOff{}
		}
		return backoff.WithMaxRetries(&backoff.ZeroBackOff{}, uint64(n))
	}
}

// running is a client that runs until stop is called or the test ends.
type running struct {
	*adsc.Client
	t     *testing.T
	stop  func()
	ended <-chan error // the error of Run
}

func run(t *testing.T, config adsc.Config) *running {
	t.Helper()
	client, err := adsc.New(config)
	require.NoError(t, err)
	return start(t, client)
}

// start runs a client that was made.
func start(t *testing.T, client *adsc.Client) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended, joined := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(joined)
		ended <- client.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-joined
	})
	return &running{client, t, cancel, ended}
}

// cancel stops the client, and waits for it.
func (r *running) cancel() {
	r.t.Helper()
	r.stop()
	require.ErrorIs(r.t, <-r.ended, context.Canceled)
}

func (r *running) subscribe(subscription adsc.Subscription) {
	r.t.Helper()
	require.NoError(r.t, r.Subscribe(subscription))
}

var response, receive = xdstest.Response, xdstest.Receive[error]

// deltaResponse makes a response of typeA.
func deltaResponse(t *testing.T, nonce, version string, items ...string) *discoveryv3.DeltaDiscoveryResponse {
	t.Helper()
	return xdstest.DeltaResponse(t, typeA, version, nonce, items...)
}

// values is the inverse of response.
func values(t *testing.T, r *adsc.Response) (texts []string) {
	t.Helper()
	for _, body := range r.Bodies() {
		texts = append(texts, xdstest.Text(t, body))
	}
	return texts
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
	if response.Complete {
		s += "complete "
	}
	if response.More {
		s += "more "
	}
	return s
}

// recorder returns a handler that rejects resources with the name "x", and the summaries of its responses.
func recorder() (adsc.Handler, <-chan string) {
	summaries := make(chan string, 100)
	return func(_ context.Context, r *adsc.Response) error {
		summaries <- summary(r)
		for _, res := range r.Resources {
			if res.Name == "x" {
				return errors.New("x: refused")
			}
		}
		return nil
	}, summaries
}

// respondsOnce is a server that sends one response on each stream.
func respondsOnce(t *testing.T) *xdstest.Server {
	return &xdstest.Server{SotW: func(_ int, s xdstest.SotWStream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		if err := s.Send(response(t, typeA, "v", "n", "a")); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}}
}

// endsStreams is a server that ends each stream after a delay.
func endsStreams(delay time.Duration, err error) *xdstest.Server {
	return &xdstest.Server{SotW: func(_ int, s xdstest.SotWStream) error {
		select {
		case <-s.Context().Done():
		case <-time.After(delay):
		}
		return err
	}}
}
