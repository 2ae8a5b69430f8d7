// Package adsc is a client of the aggregated discovery service (ADS) of any xDS server: Envoy's control planes, istiod,
// tributary. It keeps one stream up, asks for types, hands each response to a handler, and acknowledges what the handler
// took. It knows nothing of what the resources are and, but for an optional cache on disk, stores none.
package adsc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Client keeps a stream to one of several equal servers. Make it with New and let it work with Run. The other methods
// are safe for concurrent use, and may be called by handlers.
type Client struct {
	cfg   Config        // read-only
	cache *cache        // owned by Run; nil for none
	wake  chan struct{} // rung when there is something else to ask for
	again chan struct{} // rung when the stream is to be exchanged

	mu   sync.Mutex
	subs []*subscription // in the order in which they are requested
}

// New makes a client of cfg, which is taken over. It does not connect yet.
func New(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("ads client: %w", err)
	}
	c := &Client{cfg: cfg, wake: make(chan struct{}, 1), again: make(chan struct{}, 1)}
	for _, s := range cfg.Subscriptions {
		c.subs = append(c.subs, newSubscription(s))
	}
	if cfg.CacheDir != "" {
		c.cache = newCache(cfg.CacheDir, cfg.Log)
	}
	return c, nil
}

// Subscribe asks for a type, or for other names of one that is asked for already, whose handler then changes, too.
func (c *Client) Subscribe(s Subscription) error {
	if err := s.check(); err != nil {
		return fmt.Errorf("ads client: %w", err)
	}
	c.mu.Lock()
	if sub := c.find(s.TypeURL); sub != nil {
		sub.handler, sub.follow, sub.names = s.Handler, s.Follow, sortedSet(s.Names)
	} else {
		c.subs = append(c.subs, newSubscription(s))
	}
	c.mu.Unlock()
	ring(c.wake)
	return nil
}

// Reconnect has the client exchange its stream for a new one to the same server, which gets to know the node and the
// credentials as they are now. It does not wait for that.
func (c *Client) Reconnect() { ring(c.again) }

// Synced reports whether a server has answered for all of a type since the client was made. What comes from the cache
// does not count.
func (c *Client) Synced(typeURL string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	sub := c.find(typeURL)
	if sub == nil {
		return false
	}
	if sub.follow && len(sub.names) == 0 { // there is nothing to ask for, if that is known
		parent := c.find(parentOf(typeURL))
		return parent != nil && parent.synced
	}
	return sub.synced
}

// find returns the subscription of a type, or nil. The caller holds mu.
func (c *Client) find(typeURL string) *subscription {
	i := slices.IndexFunc(c.subs, func(s *subscription) bool { return s.typeURL == typeURL })
	if i < 0 {
		return nil
	}
	return c.subs[i]
}

func ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// Run keeps a stream up until ctx ends, and then returns ctx's error. It returns another error only if the backoff gives
// up; it is then that of the last stream. When Run returns, every goroutine and connection of the client has ended. Run
// must not be called twice at the same time.
func (c *Client) Run(ctx context.Context) error {
	if c.cache != nil {
		defer c.cache.close()
		if err := c.restore(ctx); err != nil {
			return err
		}
	}
	retry := c.cfg.Backoff()
	failures := 0 // in a row
	for attempt := 0; ; attempt++ {
		address := c.cfg.Addresses[attempt%len(c.cfg.Addresses)]
		stable, err := c.connect(ctx, address)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if stable {
			retry.Reset()
			failures = 0
		}
		if errors.Is(err, errReconnect) {
			attempt-- // nothing is wrong with the server
			continue
		}
		if failures++; failures < len(c.cfg.Addresses) {
			c.cfg.Log.Warn("xDS stream ended", "address", address, "err", err)
			continue
		}
		failures = 0
		wait := retry.NextBackOff()
		if wait == backoff.Stop {
			return err
		}
		if Exhausted(err) {
			wait = max(wait, c.cfg.ExhaustedWait)
		}
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

// connect connects to address and works on one stream until it ends. It reports whether the stream was of use.
func (c *Client) connect(ctx context.Context, address string) (stable bool, err error) {
	opts, err := c.dialOptions(address)
	if err != nil {
		return false, fmt.Errorf("connect to %s: %w", address, err)
	}
	// Each stream has a connection of its own, so that gRPC's hidden reconnects and their backoff do not add to ours, and
	// so that it has the newest certificates.
	conn, err := grpc.NewClient(address, opts...)
	if err != nil {
		return false, fmt.Errorf("connect to %s: %w", address, err)
	}
	defer func() { _ = conn.Close() }() // it fails only if it was closed before

	start := time.Now()
	s := newStream(ctx, c, address)
	if c.cfg.Mode != SotW {
		err = s.run(conn, openDelta)
		if c.cfg.Mode == Auto && s.wantsFallback(err) {
			c.cfg.Log.Info("falling back to state of the world", "address", address, "err", err)
			s = newStream(ctx, c, address)
			err = s.run(conn, openSotW)
		}
	} else {
		err = s.run(conn, openSotW)
	}
	return s.answered && time.Since(start) >= c.cfg.StableAfter, fmt.Errorf("xDS stream to %s: %w", address, err)
}

func (c *Client) dialOptions(address string) ([]grpc.DialOption, error) {
	creds, err := c.credentials(address)
	if err != nil {
		return nil, err
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithNoProxy(),              // a control plane is a neighbour, not a web site
		grpc.WithDisableServiceConfig(), // nor is one configured by DNS
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.cfg.MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.DefaultConfig,
			MinConnectTimeout: c.cfg.ConnectTimeout,
		}),
		// A peer that vanished without a word is noticed in 40 seconds. Servers of grpc-go that do not say otherwise
		// refuse pings more often than every five minutes without a stream, hence only with one.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	}
	if c.cfg.TokenFile != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(tokenFile(c.cfg.TokenFile)))
	}
	return append(opts, c.cfg.DialOptions...), nil
}

func (c *Client) credentials(address string) (credentials.TransportCredentials, error) {
	switch {
	case c.cfg.TLS != nil:
		return c.cfg.TLS.credentials(address)
	case c.cfg.Credentials != nil:
		return c.cfg.Credentials, nil
	}
	return insecure.NewCredentials(), nil
}
