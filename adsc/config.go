package adsc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/anypb"
)

// Defaults of a Config.
const (
	// DefaultMaxMessage bounds one response. A state-of-the-world response holds a whole type: 100,000 objects of a
	// kilobyte are 100 MB, far above gRPC's own limit of 4 MiB.
	DefaultMaxMessage = 512 << 20
	// DefaultConnectTimeout bounds one attempt to connect.
	DefaultConnectTimeout = 10 * time.Second
	// DefaultStableAfter is how long a stream must have lived for the next reconnect to be an early one. A server that
	// accepts and then refuses is thereby backed off from like one that is down.
	DefaultStableAfter = 10 * time.Second
)

// Config says whom a Client asks, as whom, and for what. New checks it.
type Config struct {
	// Addresses are the servers, as host:port, equal in content and in order of preference. Each failure moves on to
	// the next one, and the last is followed by the first.
	Addresses []string
	// Node introduces the client. It is sent with the first request of each stream and is not modified.
	Node *corev3.Node
	// Subscriptions are the types asked for, each type once, in the order in which they are requested.
	Subscriptions []Subscription

	// Credentials secure the connection; nil means plaintext.
	Credentials credentials.TransportCredentials
	// DialOptions are added to the client's own, and override them.
	DialOptions []grpc.DialOption
	// MaxMessage is the largest response taken, in bytes; 0 means DefaultMaxMessage.
	MaxMessage int
	// ConnectTimeout bounds one attempt to connect; 0 means DefaultConnectTimeout.
	ConnectTimeout time.Duration

	// Backoff makes the policy of waiting between streams; nil means exponential, from half a second to a minute, with
	// jitter, without end. When it says backoff.Stop, Run returns the last error.
	Backoff func() backoff.BackOff
	// StableAfter is how long a stream must live for the backoff to start afresh; 0 means DefaultStableAfter.
	StableAfter time.Duration

	// Log is told of reconnects and rejected responses; nil means slog.Default.
	Log *slog.Logger
}

// Subscription is a type that is asked for.
type Subscription struct {
	TypeURL string
	Names   []string // none means wildcard: all resources of the type
	Handler Handler
}

// Handler takes a response. It is called on the goroutine of Client.Run, one response at a time, and the next one is not
// read before it returns: a slow handler slows the server down, and nothing queues. The response is acknowledged when
// the handler returns nil; its error is sent to the server as the reason why the response was rejected, so it should
// name the resources that are at fault. ctx is that of Run.
type Handler func(ctx context.Context, r *Response) error

// Response is what a server sent of one type. The handler owns it.
type Response struct {
	TypeURL string
	// Version is the server's version of the type; it is opaque and may be empty.
	Version string
	// Resources are the complete set of what was asked for, for types where absence means deletion.
	Resources []*anypb.Any
	// Server is the address that the response came from.
	Server string
	// ControlPlane is how the server identifies itself; often empty.
	ControlPlane string
}

// check reports what is wrong with c, and completes it with defaults.
func (c *Config) check() error {
	if len(c.Addresses) == 0 {
		return errors.New("no server address")
	}
	for _, a := range c.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return fmt.Errorf("server address %q: want host:port: %w", a, err)
		}
	}
	if len(c.Subscriptions) == 0 {
		return errors.New("no subscriptions")
	}
	seen := make(map[string]bool, len(c.Subscriptions))
	for _, s := range c.Subscriptions {
		switch {
		case s.TypeURL == "":
			return errors.New("subscription without a type URL")
		case s.Handler == nil:
			return fmt.Errorf("subscription to %s has no handler", s.TypeURL)
		case seen[s.TypeURL]:
			return fmt.Errorf("two subscriptions to %s", s.TypeURL)
		}
		seen[s.TypeURL] = true
	}
	c.setDefaults()
	return nil
}

func (c *Config) setDefaults() {
	if c.Node == nil {
		c.Node = &corev3.Node{}
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = DefaultMaxMessage
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = DefaultConnectTimeout
	}
	if c.StableAfter == 0 {
		c.StableAfter = DefaultStableAfter
	}
	if c.Backoff == nil {
		c.Backoff = defaultBackoff
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
}

func defaultBackoff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(500*time.Millisecond),
		backoff.WithMultiplier(1.5),
		backoff.WithRandomizationFactor(0.5),
		backoff.WithMaxInterval(time.Minute),
		backoff.WithMaxElapsedTime(0),
	)
}
