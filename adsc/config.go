package adsc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
)

// Defaults of a Config.
const (
	// DefaultMaxMessage bounds one response. A state-of-the-world response holds a whole type: 100,000 objects of a
	// kilobyte are 100 MB, far above gRPC's own limit of 4 MiB.
	DefaultMaxMessage = 512 << 20
	// DefaultConnectTimeout bounds one attempt to connect.
	DefaultConnectTimeout = 10 * time.Second
	// DefaultAnswerTimeout is how long the first answer on a stream may take if there are other servers to ask.
	DefaultAnswerTimeout = 30 * time.Second
	// DefaultStableAfter is how long a stream must have stood for the next reconnect to be an early one. A server that
	// accepts and then refuses is thereby backed off from like one that is down, also if it takes a while to refuse.
	DefaultStableAfter = 10 * time.Second
	// DefaultExhaustedWait is how long to leave a server alone, at least, that said ResourceExhausted.
	DefaultExhaustedWait = 5 * time.Second
	// DefaultAbsentAfter is how long a resource that was asked for by name may take to come before it counts as one that
	// does not exist: that of gRPC's clients.
	DefaultAbsentAfter = 15 * time.Second
)

// Mode is the variant of the protocol.
type Mode int

// The variants.
const (
	SotW  Mode = iota // state of the world: each response has all resources of its type
	Delta             // incremental: each response has the changes
	// Auto asks for delta, and falls back to state of the world on the same connection if the server does not have it,
	// or has it without versions of resources: its changes are then full sets in disguise, and nothing can be resumed.
	Auto
)

// Config says whom a Client asks, as whom, and for what. New checks it.
type Config struct {
	// Addresses are the servers, as host:port, equal in content and in order of preference. Each failure moves on to
	// the next one, and the last is followed by the first. There is no wait before all of them have failed.
	Addresses []string
	// Mode is the variant of the protocol; the default is SotW.
	Mode Mode
	// Node introduces the client. It is sent with the first request of each stream and is not modified.
	Node *corev3.Node
	// NodeIn, if set, makes the node of each stream, in place of Node. Its argument is the Kubernetes namespace of the
	// identity that the client presents on the stream, by certificate or token; empty if that names none.
	NodeIn func(namespace string) *corev3.Node
	// Subscriptions are the types asked for from the start, each type once, in the order in which they are requested.
	Subscriptions []Subscription

	// TLS secures connections; it is read anew for each. If it is nil, connections are plaintext.
	TLS *TLS
	// TokenFile is a file with a bearer token, sent with each stream and read anew for it. It needs TLS.
	TokenFile string
	// DialOptions are added to the client's own, and override them.
	DialOptions []grpc.DialOption
	// MaxMessage is the largest response taken, in bytes; 0 means DefaultMaxMessage.
	MaxMessage int
	// ConnectTimeout bounds one attempt to connect; 0 means DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// AnswerTimeout bounds the wait for the first answer on a stream where there are other servers to ask; 0 means
	// DefaultAnswerTimeout. A single server is waited for without end.
	AnswerTimeout time.Duration

	// Backoff makes the policy of waiting between rounds; nil means exponential, from half a second to a minute, with
	// jitter, without end. When it says backoff.Stop, Run returns the last error.
	Backoff func() backoff.BackOff
	// StableAfter is how long a stream must stand for the backoff to start afresh, and to count as connected if the server
	// says nothing; 0 means DefaultStableAfter.
	StableAfter time.Duration
	// ExhaustedWait is the least wait after ResourceExhausted; 0 means DefaultExhaustedWait.
	ExhaustedWait time.Duration

	// AbsentAfter is how long a resource that was asked for by name may take to come before it counts as one that does not
	// exist; 0 means DefaultAbsentAfter, and less than that never. See Subscription.Absent.
	AbsentAfter time.Duration
	// CompareAfter is how long a client goes on from versions that it brought along, in delta mode, before it has everything
	// sent once more and compares: a server that takes no note of the versions does not say what has gone. At most one
	// compare follows each reconnect. 0 means never. See Hooks.Compared.
	CompareAfter time.Duration

	Hooks Hooks
	// Log gets reconnects and rejected responses; nil means slog.Default.
	Log *slog.Logger
}

// Hooks tell what a Client does. Each may be nil; they are called on the goroutine of Run, which waits for them.
type Hooks struct {
	// Opened is called when a stream was opened and everything was asked for. The server need not have noticed.
	Opened func(server string)
	// Accept is called with the header of a stream before its first response is handled. An error ends the stream as if the
	// server had refused the client.
	Accept func(server string, header metadata.MD) error
	// Connected is called once for a stream, when it was answered for the first time or has stood for StableAfter: a
	// client that resumes may get nothing, and a server may take a while to refuse one.
	Connected func(server string)
	// Failed is called when every server has failed in a row, with the error of the last and the wait before the next
	// round. See Denied and Exhausted.
	Failed func(err error, wait time.Duration)
	// Compared is called when a type was compared in full, with how many of its resources were not what the client had, or had
	// gone. What changed while the stream was exchanged is among them.
	Compared func(typeURL string, healed int)
	// Response is called after each response was handled, with the handler's error.
	Response func(r *Response, rejected error)
}

// Subscription is a type that is asked for.
type Subscription struct {
	TypeURL string
	Names   []string // none means wildcard, all resources of the type, as does "*"
	// Follow has the client ask for those names that the parents of the type refer to, as Envoy does: for routes those
	// of listeners, for endpoints those of clusters. The parents must be subscribed to, too. Names must be empty.
	Follow  bool
	Handler Handler
	// Absent, if set, is called with names that were asked for and do not exist, once until they are there again: the server
	// said so, or leaves out of a complete set what was in earlier ones, or said nothing for AbsentAfter. It is called like
	// the handler. See also Client.Resources.
	Absent func(ctx context.Context, names []string)
	// NameOf tells the name of a resource that came without, as they do in a state of the world; "" if it has none. It need
	// not be set for Envoy's types. Without it nothing is known of single resources in that mode.
	NameOf func(body *anypb.Any) string
	// Versions are those of resources, by name, that the caller has already: in delta mode only what differs is sent.
	// The client takes them over.
	Versions map[string]string
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
		if err := s.check(); err != nil {
			return err
		}
		if seen[s.TypeURL] {
			return fmt.Errorf("two subscriptions to %s", s.TypeURL)
		}
		seen[s.TypeURL] = true
	}
	if c.TLS != nil {
		if err := c.TLS.Check(); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
	}
	if c.TokenFile != "" && (c.TLS == nil || !c.TLS.Secure()) {
		return ErrPlainToken
	}
	c.setDefaults()
	return nil
}

func (s *Subscription) check() error {
	switch {
	case s.TypeURL == "":
		return errors.New("subscription without a type URL")
	case s.Handler == nil:
		return fmt.Errorf("subscription to %s has no handler", s.TypeURL)
	case s.Follow && parentOf(s.TypeURL) == "":
		return fmt.Errorf("subscription to %s: nothing to follow; only routes and endpoints have parents", s.TypeURL)
	case s.Follow && len(s.Names) > 0:
		return fmt.Errorf("subscription to %s: either names or those that parents refer to, not both", s.TypeURL)
	case slices.Contains(s.Names, ""):
		return fmt.Errorf("subscription to %s: an empty name", s.TypeURL)
	}
	return nil
}

func (c *Config) setDefaults() {
	if c.Node == nil {
		c.Node = &corev3.Node{}
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = DefaultMaxMessage
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&c.ConnectTimeout, DefaultConnectTimeout},
		{&c.AnswerTimeout, DefaultAnswerTimeout},
		{&c.StableAfter, DefaultStableAfter},
		{&c.ExhaustedWait, DefaultExhaustedWait},
		{&c.AbsentAfter, DefaultAbsentAfter},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
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
