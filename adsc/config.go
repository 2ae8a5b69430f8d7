package adsc

import (
	"cmp"
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
)

// Defaults of a Config.
const (
	// DefaultMaxMessage bounds one response. A state-of-the-world response holds a whole type: 100,000 objects of a
	// kilobyte are 100 MB, far above gRPC's own limit of 4 MiB.
	DefaultMaxMessage = 512 << 20
	// DefaultConnectTimeout bounds one attempt to connect.
	DefaultConnectTimeout = 10 * time.Second
	// DefaultAnswerTimeout is the time for the first response on a stream if there are other servers.
	DefaultAnswerTimeout = 30 * time.Second
	// DefaultStableAfter is the lowest age of a stream that resets the backoff. So the waits grow for a server that
	// accepts each stream and refuses it a moment later.
	DefaultStableAfter = 10 * time.Second
	// DefaultExhaustedWait is the shortest wait before the client tries a server again that reported ResourceExhausted.
	DefaultExhaustedWait = 5 * time.Second
)

// Mode is the variant of the protocol.
type Mode int

// The variants.
const (
	SotW  Mode = iota // state of the world: each response has all resources of its type
	Delta             // incremental: each response has the changes
	// Auto requests delta. It falls back to state of the world on the same connection if the server lacks delta, or sends
	// delta without versions of resources: a client cannot resume without versions.
	Auto
)

// Config has the servers, the identity and the subscriptions of a Client. New checks it.
type Config struct {
	// Addresses are the servers, as host:port, equal in content and in order of preference. Each failure moves on to
	// the next one, and the last is followed by the first. There is no wait before all of them have failed.
	Addresses []string
	// Mode is the variant of the protocol; the default is SotW.
	Mode Mode
	// Node introduces the client. It is sent with the first request of each stream and is not modified.
	Node *corev3.Node
	// NodeIn, if set, makes the node of each stream, instead of Node. Its argument is the Kubernetes namespace of the
	// client's identity on the stream, by certificate or token; empty without one.
	NodeIn func(namespace string) *corev3.Node
	// Subscriptions are the first subscribed types, each once, in the order of their requests.
	Subscriptions []Subscription

	// TLS secures connections; its files are read for each connection. If it is nil, connections are plaintext.
	TLS *TLS
	// TokenFile is a file with a bearer token, which is read and sent for each stream. It needs TLS.
	TokenFile string
	// DialOptions are added to the client's own, and override them.
	DialOptions []grpc.DialOption
	// MaxMessage is the size of the largest accepted response, in bytes; 0 means DefaultMaxMessage.
	MaxMessage int
	// ConnectTimeout bounds one attempt to connect; 0 means DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// AnswerTimeout bounds the wait for the first response on a stream if there are other servers; 0 means
	// DefaultAnswerTimeout. The wait for a single server is unbounded.
	AnswerTimeout time.Duration

	// Backoff makes the policy of waits after all servers have failed. When the policy returns backoff.Stop, Run returns
	// the last error. Nil means exponential waits from half a second to 10 s, with jitter, without end.
	Backoff func() backoff.BackOff
	// StableAfter is the lowest age of a stream that resets the backoff, and that counts as connected even without a
	// response; 0 means DefaultStableAfter.
	StableAfter time.Duration
	// ExhaustedWait is the shortest wait after ResourceExhausted; 0 means DefaultExhaustedWait.
	ExhaustedWait time.Duration

	// CompareAfter is for delta mode. So long after a stream that resumed, the client requests all resources once more and
	// compares, because a server that ignores the client's versions does not report removals. At most one comparison
	// follows each reconnect. 0 means never. See Hooks.Compared.
	CompareAfter time.Duration

	Hooks Hooks
	// Log gets reconnects and rejected responses; nil means slog.Default.
	Log *slog.Logger
}

// Hooks observe a Client. Each may be nil. They are called on the goroutine of Run, which waits for them.
type Hooks struct {
	// Accept is called with the header of a stream before its first response is handled. An error ends the stream as if
	// the server had refused the client.
	Accept func(server string, header metadata.MD) error
	// Connected is called once for a stream: with its first response, since a server may take a while to refuse a stream,
	// or after StableAfter, since a client that resumes may get no response.
	Connected func(server string)
	// Failed is called when every server has failed in a row, with the error of the last and the wait before the next
	// round. See Denied and Exhausted.
	Failed func(err error, wait time.Duration)
	// Compared is called after a comparison of a type, with the number of resources that differed or were removed. Changes
	// that occurred while the stream was replaced count as differences.
	Compared func(typeURL string, differences int)
	// Response is called after each response was handled, with the handler's error.
	Response func(r *Response, rejected error)
}

// Subscription is a subscribed type.
type Subscription struct {
	TypeURL string
	Names   []string // the wildcard "*" or an empty list means all resources of the type
	Handler Handler
	// Versions are the versions of the caller's resources, by name: in delta mode, the server sends only differences. The
	// client owns the map from then on.
	Versions map[string]string
}

// check reports errors of c, and fills in defaults.
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
	for _, subscription := range c.Subscriptions {
		if err := subscription.check(); err != nil {
			return err
		}
		if seen[subscription.TypeURL] {
			return fmt.Errorf("two subscriptions to %s", subscription.TypeURL)
		}
		seen[subscription.TypeURL] = true
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
	case slices.Contains(s.Names, ""):
		return fmt.Errorf("subscription to %s: an empty name", s.TypeURL)
	}
	return nil
}

func (c *Config) setDefaults() {
	c.Node = cmp.Or(c.Node, &corev3.Node{})
	c.MaxMessage = cmp.Or(c.MaxMessage, DefaultMaxMessage)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, DefaultConnectTimeout)
	c.AnswerTimeout = cmp.Or(c.AnswerTimeout, DefaultAnswerTimeout)
	c.StableAfter = cmp.Or(c.StableAfter, DefaultStableAfter)
	c.ExhaustedWait = cmp.Or(c.ExhaustedWait, DefaultExhaustedWait)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Backoff == nil {
		c.Backoff = defaultBackoff
	}
}

func defaultBackoff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(500*time.Millisecond),
		backoff.WithMultiplier(1.5),
		backoff.WithRandomizationFactor(0.5),
		backoff.WithMaxInterval(10*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}
