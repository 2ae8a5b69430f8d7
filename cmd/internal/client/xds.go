package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/adsc"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/verify"
	"tributary/sources/xds"
)

// XDS is a client of one server.
type XDS struct {
	Server string    // host:port
	TLS    *adsc.TLS // nil for plaintext
	// TokenFile has a token, which requires TLS; empty for none.
	TokenFile string
	Timeout   time.Duration     // of Get
	NodeID    string            // empty for a default
	Metadata  map[string]string // of its node
	Log       *slog.Logger      // for errors before retries
	// Reconnected is called when a watch has connected again; may be nil.
	Reconnected func(server string)
	// Waiting is called with the error when a watch begins to wait for a server that does not answer yet; may be nil.
	Waiting func(err error)
}

// Answer has a server's objects of a kind at one moment.
type Answer struct {
	typeURL   string
	Resources []*resource.Resource // in key order
	Rejects   []error              // decoding errors
}

func (a *Answer) empty() bool { return len(a.Resources)+len(a.Rejects) == 0 }

// unavailableError is the error of a server that may become reachable or ready soon.
type unavailableError struct{ error }

var errAnswered = errors.New("answered")

// Get returns the server's objects of a kind.
func (x *XDS) Get(ctx context.Context, schema *resource.Schema) (*Answer, error) {
	answers, err := x.GetAll(ctx, []*resource.Schema{schema})
	if err != nil {
		return nil, err
	}
	return answers[0], nil
}

// GetAll returns the server's objects of distinct kinds. One stream requests each kind by its preferred version, so
// that the server's log shows one client. Further streams request the empty kinds by their next versions: an istiod
// serves a kind under one version, which depends on its release, and answers the others with empty sets.
func (x *XDS) GetAll(ctx context.Context, schemas []*resource.Schema) ([]*Answer, error) {
	answers := make([]*Answer, len(schemas))
	for version := 0; ; version++ {
		var pending []int
		for index, schema := range schemas {
			if version < len(schema.Versions) && (answers[index] == nil || answers[index].empty()) {
				pending = append(pending, index)
			}
		}
		if len(pending) == 0 {
			return answers, nil
		}
		err := x.runUntil(ctx, adsc.New, func(answered func()) adsc.Config {
			remaining := len(pending)
			subscriptions := make([]adsc.Subscription, remaining)
			for position, index := range pending {
				answeredOnce := false
				subscriptions[position] = adsc.Subscription{
					TypeURL: schemas[index].TypeURLs()[version],
					Handler: func(_ context.Context, response *adsc.Response) error {
						answers[index] = decode(response)
						if !answeredOnce {
							answeredOnce, remaining = true, remaining-1
						}
						if remaining == 0 {
							answered()
						}
						return nil
					},
				}
			}
			return x.objectConfig(subscriptions...)
		})
		if err != nil {
			return nil, err
		}
	}
}

// Debug returns a debug page of an istiod, such as configz. istiod serves it to identities of its root namespace.
func (x *XDS) Debug(ctx context.Context, page string) (text []byte, err error) {
	err = x.runUntil(ctx, adsc.New, func(answered func()) adsc.Config {
		handler := func(_ context.Context, response *adsc.Response) error {
			for _, body := range response.Bodies() {
				text = body.GetValue()
			}
			answered()
			return nil
		}
		return x.clientConfig(adsc.Subscription{TypeURL: "istio.io/debug", Names: []string{page}, Handler: handler})
	})
	return text, err
}

// runUntil runs a client until one of its handlers calls answered. A timeout is an error.
func (x *XDS) runUntil(
	ctx context.Context, start func(adsc.Config) (*adsc.Client, error), config func(answered func()) adsc.Config,
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, x.Timeout, unavailableError{fmt.Errorf(
		"%s did not answer within %s; a server answers after it has read its sources", x.Server, x.Timeout)})
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	settings := config(func() { stop(errAnswered) })
	settings.Backoff = func() backoff.BackOff { return &backoff.StopBackOff{} }
	client, err := start(settings)
	if err != nil {
		return err
	}
	err = client.Run(ctx)
	if status.Code(err) == codes.DeadlineExceeded {
		<-ctx.Done() // the server gets the deadline by gRPC, and may see it pass earlier
	}
	switch {
	case errors.Is(context.Cause(ctx), errAnswered):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return x.explainError(err)
}

func (x *XDS) explainError(err error) error {
	var statusError interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &statusError) {
		return err
	}
	message := words.Plain(statusError.GRPCStatus().Message())
	if advice := adsc.Advice(err, "--node-id"); advice != "" {
		return fmt.Errorf("%s: %s: %s", x.Server, message, advice)
	}
	switch statusError.GRPCStatus().Code() {
	case codes.Unavailable:
		// a text that gRPC took for a frame
		if strings.Contains(message, "frame too large") || strings.Contains(message, "HTTP/1.1") {
			return fmt.Errorf("%s does not speak gRPC: it may be the admin port (listen.admin) of tributary; give the address "+
				"of its port for xDS",
				x.Server)
		}
		err := fmt.Errorf("%s is unavailable: %s", x.Server, cmp.Or(words.ConnectionError(x.Server, message), message))
		if strings.Contains(message, "handshake") {
			return err // waiting does not fix TLS
		}
		return unavailableError{err}
	case codes.Unimplemented:
		if strings.Contains(message, "admin port of tributary") || strings.Contains(message, "unknown service") {
			return fmt.Errorf("%s does not serve xDS: it may be the admin port (listen.admin) of tributary; give the address "+
				"of its port for xDS",
				x.Server)
		}
	}
	return fmt.Errorf("%s: %s (%s)", x.Server, message, statusError.GRPCStatus().Code())
}

// objectConfig configures requests like those of istiod to its config sources, so that any server of MCP accepts them.
func (x *XDS) objectConfig(subscriptions ...adsc.Subscription) adsc.Config {
	settings := x.clientConfig(subscriptions...)
	// istiod sends objects for this generator, not Envoy configuration.
	settings.Node.Metadata.Fields["GENERATOR"] = structpb.NewStringValue("api")
	return settings
}

func (x *XDS) clientConfig(subscriptions ...adsc.Subscription) adsc.Config {
	connected := false
	fields := make(map[string]*structpb.Value, len(x.Metadata)+1)
	for name, value := range x.Metadata {
		fields[name] = structpb.NewStringValue(value)
	}
	node := &corev3.Node{UserAgentName: verify.CommandAgent, Metadata: &structpb.Struct{Fields: fields}}
	return adsc.Config{
		Addresses: []string{x.Server},
		TLS:       x.TLS,
		TokenFile: x.TokenFile,
		Node:      node,
		NodeIn: func(namespace string) *corev3.Node {
			node.Id = cmp.Or(x.NodeID, adsc.NodeID(verify.CommandAgent, namespace))
			return node
		},
		Subscriptions: subscriptions,
		Backoff:       newBackoff,
		Hooks: adsc.Hooks{Connected: func(server string) {
			if connected && x.Reconnected != nil {
				x.Reconnected(server)
			}
			connected = true
		}},
		Log: x.Log,
	}
}

// maxRetryInterval is short, since a person waits.
const maxRetryInterval = 2 * time.Second

func newBackoff() backoff.BackOff {
	return backoff.NewExponentialBackOff(backoff.WithMaxInterval(maxRetryInterval), backoff.WithMaxElapsedTime(0))
}

// decode decodes a response, with the decoding errors.
func decode(response *adsc.Response) *Answer {
	answer := &Answer{typeURL: response.TypeURL}
	for _, body := range response.Bodies() {
		object, err := xds.Decode(response.TypeURL, body)
		if err != nil {
			answer.Rejects = append(answer.Rejects, fmt.Errorf("%s sent something invalid: %w", response.Server, err))
			continue
		}
		answer.Resources = append(answer.Resources, object)
	}
	slices.SortFunc(answer.Resources, func(body, b *resource.Resource) int { return body.Key().Compare(b.Key()) })
	return answer
}
