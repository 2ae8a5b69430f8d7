// Package adsc is a client of the aggregated discovery service (ADS) of any xDS server: Envoy's control planes, istiod,
// tributary. It keeps one stream up, asks for types, hands each response to a handler, and acknowledges what the handler
// took. It knows nothing of what the resources are and stores none.
package adsc

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Client keeps a stream to one of several equal servers. Make it with New and let it work with Run.
type Client struct {
	cfg Config // read-only

	// Owned by Run. What is remembered of a type lives as long as the client: versions survive a reconnect, nonces do
	// not.
	subs map[string]*subscription
}

// subscription is a Subscription and how far it got.
type subscription struct {
	Subscription
	version string // of the last response that the handler took
}

// New makes a client of cfg, which is taken over. It does not connect yet.
func New(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("ads client: %w", err)
	}
	c := &Client{cfg: cfg, subs: make(map[string]*subscription, len(cfg.Subscriptions))}
	for _, s := range cfg.Subscriptions {
		c.subs[s.TypeURL] = &subscription{Subscription: s}
	}
	return c, nil
}

// Run keeps a stream up until ctx ends, and then returns ctx's error. It returns another error only if the backoff gives
// up; it is then that of the last stream. Run must not be called twice at the same time.
func (c *Client) Run(ctx context.Context) error {
	retry := c.cfg.Backoff()
	for attempt := 0; ; attempt++ {
		address := c.cfg.Addresses[attempt%len(c.cfg.Addresses)]
		start := time.Now()
		err := c.runStream(ctx, address)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(start) >= c.cfg.StableAfter {
			retry.Reset()
		}
		wait := retry.NextBackOff()
		if wait == backoff.Stop {
			return err
		}
		c.cfg.Log.Warn("xDS stream ended", "address", address, "err", err, "retry_in", wait.Round(time.Millisecond))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// runStream connects to address and works on one stream until it ends.
func (c *Client) runStream(ctx context.Context, address string) error {
	// Each stream has a connection of its own, so that gRPC's hidden reconnects and their backoff do not add to ours.
	conn, err := grpc.NewClient(address, c.dialOptions()...)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	defer func() { _ = conn.Close() }() // it fails only if it was closed before
	if err := c.runSotW(ctx, conn, address); err != nil {
		return fmt.Errorf("xDS stream to %s: %w", address, err)
	}
	return nil
}

func (c *Client) dialOptions() []grpc.DialOption {
	creds := c.cfg.Credentials
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	return append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithNoProxy(), // a control plane is a neighbour, not a web site
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.cfg.MaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.DefaultConfig,
			MinConnectTimeout: c.cfg.ConnectTimeout,
		}),
		// A peer that vanished without a word is noticed in 40 seconds. Servers of grpc-go that do not say otherwise
		// refuse pings more often than every five minutes without a stream, hence only with one.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	}, c.cfg.DialOptions...)
}
