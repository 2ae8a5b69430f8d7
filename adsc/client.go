package adsc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"tributary/internal/intake"
)

// The limits of the time between two pings. A grpc-go server with default settings ends connections with more than one
// ping in five minutes. After each such end the client doubles the interval, as gRPC's clients do.
const (
	minPingInterval = 30 * time.Second
	maxPingInterval = 6 * time.Minute
)

// Client keeps a stream to one of several equal servers. New makes it, and Run runs it. The other methods are safe for
// concurrent use, and handlers may call them.
type Client struct {
	cfg       Config        // read-only
	changed   chan struct{} // signals that subscriptions have changed
	reconnect chan struct{} // signals that the stream has to be replaced

	// Owned by Run.
	pingInterval time.Duration

	running atomic.Bool

	mu            sync.Mutex
	subscriptions []*subscription // in the order of the requests
}

// New returns a client, which owns cfg from then on. It does not connect yet.
func New(config Config) (*Client, error) {
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("ads client: %w", err)
	}
	client := &Client{
		cfg: config, changed: make(chan struct{}, 1), reconnect: make(chan struct{}, 1), pingInterval: minPingInterval,
	}
	for _, s := range config.Subscriptions {
		client.subscriptions = append(client.subscriptions, newSubscription(s))
	}
	return client, nil
}

// Subscribe subscribes to a type, or changes the names and the handler of a subscription. The client forgets resources
// with names that were removed, without a call of the handler. If such a name is added again, the server sends its
// resource again. Versions have no effect on a type that is subscribed to already.
func (c *Client) Subscribe(subscription Subscription) error {
	if err := subscription.check(); err != nil {
		return fmt.Errorf("ads client: %w", err)
	}
	c.mu.Lock()
	if sub := c.find(subscription.TypeURL); sub != nil {
		sub.configure(subscription)
	} else {
		c.subscriptions = append(c.subscriptions, newSubscription(subscription))
	}
	c.mu.Unlock()
	notify(c.changed)
	return nil
}

// Unsubscribe ends the subscription to a type, if there is one. The handler is not called again, but may be running.
func (c *Client) Unsubscribe(typeURL string) {
	c.mu.Lock()
	c.subscriptions = slices.DeleteFunc(c.subscriptions, func(s *subscription) bool { return s.typeURL == typeURL })
	c.mu.Unlock()
	notify(c.changed)
}

// Reconnect makes the client replace its stream by a new one to the same server, with the present credentials. It does
// not wait.
func (c *Client) Reconnect() { notify(c.reconnect) }

// Synced reports whether a server has sent all resources of a type since the client subscribed to it.
func (c *Client) Synced(typeURL string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	sub := c.find(typeURL)
	return sub != nil && sub.synced
}

// find returns the subscription of a type, or nil. The caller holds mu.
func (c *Client) find(typeURL string) *subscription {
	i := slices.IndexFunc(c.subscriptions, func(s *subscription) bool { return s.typeURL == typeURL })
	if i < 0 {
		return nil
	}
	return c.subscriptions[i]
}

func notify(wakeup chan<- struct{}) {
	select {
	case wakeup <- struct{}{}:
	default:
	}
}

// Run keeps a stream open until ctx ends, and returns the error of ctx. If the backoff gives up, it returns the error
// of the last stream. It also fails if the client runs already. When Run returns, all goroutines and connections of the
// client have ended, and it may be called again.
func (c *Client) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("ads client: Run was called while it runs")
	}
	defer c.running.Store(false)
	retry := c.cfg.Backoff()
	failures := 0                             // since the last wait or stable stream
	pausedUntil := make(map[string]time.Time) // by address
	var err error
	for attempt := 0; ; attempt++ {
		address := c.cfg.Addresses[attempt%len(c.cfg.Addresses)]
		isPaused := time.Until(pausedUntil[address]) > 0
		stable := false
		if !isPaused { // a pause counts as a failure with the previous error
			stable, err = c.connect(ctx, address)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if stable {
			retry.Reset()
			failures = 0
		}
		if errors.Is(err, errReconnect) {
			attempt-- // the server did not fail
			continue
		}
		now := time.Now()
		if !isPaused && Exhausted(err) {
			pausedUntil[address] = now.Add(c.cfg.ExhaustedWait)
		}
		failures++
		if failures < len(c.cfg.Addresses) {
			c.cfg.Log.Warn("xDS stream ended", "address", address, "err", err)
			continue
		}
		failures = 0
		wait := retry.NextBackOff()
		if wait == backoff.Stop {
			return err
		}
		wait = max(wait, c.firstPauseEnd(pausedUntil).Sub(now))
		c.cfg.Log.Warn("xDS stream ended", "address", address, "err", err, "retry_in", wait.Round(time.Millisecond))
		if c.cfg.Hooks.Failed != nil {
			c.cfg.Hooks.Failed(err, wait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// firstPauseEnd returns the earliest end of a pause; the zero time if a server has none.
func (c *Client) firstPauseEnd(pausedUntil map[string]time.Time) time.Time {
	return pausedUntil[slices.MinFunc(c.cfg.Addresses, func(a, b string) int {
		return pausedUntil[a].Compare(pausedUntil[b])
	})]
}

// connect connects to address and runs one stream until it ends. It reports whether the stream was open long enough to
// reset the backoff.
func (c *Client) connect(ctx context.Context, address string) (stable bool, err error) {
	opts, node, err := c.dialOptions(address)
	if err != nil {
		return false, fmt.Errorf("connect to %s: %w", address, err)
	}
	// Each stream has a connection of its own, so that gRPC's hidden reconnects and their backoff do not add to ours, and
	// so that it has the newest certificates.
	conn, err := grpc.NewClient(address, opts...)
	if err != nil {
		return false, fmt.Errorf("connect to %s: %w", address, err)
	}
	defer func() { _ = conn.Close() }() // fails only if it is closed already

	stream := newStream(ctx, c, address, node)
	variant := c.cfg.Mode
	if variant == Auto {
		variant = Delta
	}
	err = stream.run(conn, variant)
	if c.cfg.Mode == Auto && stream.wantsFallback(err) {
		c.cfg.Log.Info("falling back to state of the world", "address", address, "err", err)
		stream = newStream(ctx, c, address, node)
		err = stream.run(conn, SotW)
	}
	stream.omitLargeVersions(err)
	if tooManyPings(err) {
		c.pingInterval = min(2*c.pingInterval, maxPingInterval)
	}
	return stream.lasted(err), &streamError{address, err}
}

// dialOptions returns the options of a connection, and the node for the identity that the client presents on it.
func (c *Client) dialOptions(address string) ([]grpc.DialOption, *corev3.Node, error) {
	secure, err := c.cfg.TLS.configFor(address)
	if err != nil {
		return nil, nil, err
	}
	node := c.cfg.Node
	if c.cfg.NodeIn != nil {
		node = c.cfg.NodeIn(identityNamespace(secure, c.cfg.TokenFile))
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(credentialsOf(secure)),
		grpc.WithNoProxy(),              // a control plane is a neighbour, not a web site
		grpc.WithDisableServiceConfig(), // nor is one configured by DNS
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.cfg.MaxMessage)),
		intake.DialOption(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.DefaultConfig,
			MinConnectTimeout: c.cfg.ConnectTimeout,
		}),
		// A silent peer is noticed in 40 seconds, unless the server refuses such pings.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: c.pingInterval, Timeout: 10 * time.Second}),
	}
	if c.cfg.TokenFile != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(tokenFile(c.cfg.TokenFile)))
	}
	return append(opts, c.cfg.DialOptions...), node, nil
}
