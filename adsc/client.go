// Package adsc is a client of the aggregated discovery service (ADS) of any xDS server: Envoy's control planes, istiod,
// tributary. It keeps one stream up, asks for types, hands each response to a handler, and acknowledges what the handler
// took. It knows nothing of what the resources are and, but for an optional cache on disk, stores none.
//
// What it does not do: a resource that is asked for by an alias is handed out, but counts as absent by that name, and is not told of
// when it goes. What a server that restarts calls by a version that it gave before to something else is not asked for anew: in a
// state of the world nothing compares. A response that crosses two changes of what is wanted, away from all and back, is taken
// for one to the last.
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
	"google.golang.org/grpc/keepalive"
)

// How often a server is asked whether it is there. One of grpc-go that does not say otherwise ends connections that ask more
// often than every five minutes; each time it does, the time is doubled, as gRPC has clients do.
const (
	minPing = 30 * time.Second
	maxPing = 6 * time.Minute
)

// Client keeps a stream to one of several equal servers. Make it with New and let it work with Run. The other methods
// are safe for concurrent use, and may be called by handlers.
type Client struct {
	cfg   Config        // read-only
	wake  chan struct{} // rung when there is something else to ask for
	again chan struct{} // rung when the stream is to be exchanged

	// Owned by Run.
	cache *cache        // nil for none
	ping  time.Duration // how often a server is asked whether it is there

	mu      sync.Mutex
	running bool
	subs    []*subscription // in the order in which they are requested
}

// New makes a client of cfg, which is taken over. It does not connect yet.
func New(cfg Config) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("ads client: %w", err)
	}
	c := &Client{cfg: cfg, wake: make(chan struct{}, 1), again: make(chan struct{}, 1), ping: minPing}
	for _, s := range cfg.Subscriptions {
		c.subs = append(c.subs, newSubscription(s))
	}
	return c, nil
}

// Subscribe asks for a type, or for other names of one that is asked for already, whose handler then changes, too. What is
// not asked for any more is forgotten without a word to the handler, and comes anew if it is asked for again; Versions are
// of no use for a type that is asked for already.
func (c *Client) Subscribe(s Subscription) error {
	if err := s.check(); err != nil {
		return fmt.Errorf("ads client: %w", err)
	}
	c.mu.Lock()
	sub := c.find(s.TypeURL)
	if sub != nil {
		sub.change(s)
	} else {
		sub = newSubscription(s)
		c.subs = append(c.subs, sub)
	}
	if parent := c.find(parentOf(s.TypeURL)); s.Follow && parent != nil && !c.unread(parent) {
		sub.want(parent.refers.wants())
	}
	c.mu.Unlock()
	ring(c.wake)
	return nil
}

// Unsubscribe asks for nothing of a type any more. Its handler is not called again, but may be at work. A type that is not
// asked for is none of its business.
func (c *Client) Unsubscribe(typeURL string) {
	c.mu.Lock()
	c.subs = slices.DeleteFunc(c.subs, func(s *subscription) bool { return s.typeURL == typeURL })
	if follower := c.follower(typeURL); follower != nil {
		follower.want(wants{}) // nothing refers to anything
	}
	c.mu.Unlock()
	ring(c.wake)
}

// Resources returns the conditions of those resources of a type that are asked for by name, in order of name. In a state of
// the world the names of resources must be known for that; see Subscription.NameOf.
func (c *Client) Resources(typeURL string) []ResourceStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	sub := c.find(typeURL)
	if sub == nil {
		return nil
	}
	list := make([]ResourceStatus, len(sub.wants.names))
	for i, name := range sub.wants.names {
		list[i] = sub.resources[name].ResourceStatus
	}
	return list
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
	return sub != nil && c.synced(sub)
}

// synced is Synced for who holds mu.
func (c *Client) synced(sub *subscription) bool {
	if sub.follow && sub.wants.nothing() { // there is nothing to ask for, if that is known
		parent := c.find(parentOf(sub.typeURL))
		return parent != nil && parent.synced && !c.unread(parent)
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
// up, and then that of the last stream, or if the cache directory cannot be used or the client runs already. When Run
// returns, every goroutine and connection of the client has ended, and it may be called again.
func (c *Client) Run(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	if err := c.openCache(); err != nil {
		return err
	}
	if c.cache != nil {
		defer func() {
			c.cache.close()
			c.cache = nil
		}()
		if err := c.restore(ctx); err != nil {
			return err
		}
	}
	retry := c.cfg.Backoff()
	failures := 0                       // in a row
	alone := make(map[string]time.Time) // until when to leave servers alone, by address
	var err error
	for attempt := 0; ; attempt++ {
		address := c.cfg.Addresses[attempt%len(c.cfg.Addresses)]
		stable, tried := false, time.Until(alone[address]) <= 0
		if tried { // else it is as if it had refused us once more
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
			attempt-- // nothing is wrong with the server
			continue
		}
		now := time.Now()
		if tried && Exhausted(err) {
			alone[address] = now.Add(c.cfg.ExhaustedWait)
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
		wait = max(wait, c.soonest(alone).Sub(now))
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

// soonest returns when one of the servers may be asked again, given until when to leave each alone.
func (c *Client) soonest(alone map[string]time.Time) time.Time {
	soonest := alone[c.cfg.Addresses[0]]
	for _, address := range c.cfg.Addresses {
		if until := alone[address]; until.Before(soonest) {
			soonest = until
		}
	}
	return soonest
}

func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return errors.New("ads client: Run was called while it runs")
	}
	c.running = true
	return nil
}

// openCache opens the cache, if there is to be one. A directory that cannot be written is no reason not to run.
func (c *Client) openCache() (err error) {
	if c.cfg.CacheDir == "" {
		return nil
	}
	c.cache, err = openCache(c.cfg.CacheDir, c.cfg.Log)
	if errors.Is(err, errShared) {
		return fmt.Errorf("ads client: cache directory %s: %w", c.cfg.CacheDir, err)
	}
	if err != nil {
		c.cfg.Log.Warn("responses are not cached", "err", err)
	}
	return nil
}

func (c *Client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
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
	s.lighten(err)
	if tooManyPings(err) {
		c.ping = min(2*c.ping, maxPing)
	}
	return s.stood(err), &streamError{address, err}
}

func (c *Client) dialOptions(address string) ([]grpc.DialOption, error) {
	creds, err := c.cfg.TLS.Credentials(address)
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
		// A peer that vanished without a word is noticed in 40 seconds, unless servers will not have it.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: c.ping, Timeout: 10 * time.Second}),
	}
	if c.cfg.TokenFile != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(tokenFile(c.cfg.TokenFile)))
	}
	return append(opts, c.cfg.DialOptions...), nil
}
