// Package client asks servers: XDS any server of MCP over xDS or of Envoy's resources, for a person to look at, and Admin the admin server
// of a tributary. WriteBootstrap writes what other clients must be told to find a server.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	mcp "istio.io/api/mcp/v1alpha1"

	"tributary/adsc"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/verify"
)

// XDS asks one server.
type XDS struct {
	Server string    // host:port
	TLS    *adsc.TLS // nil for plaintext
	// TokenFile has a token to show, for which it needs TLS; empty for none.
	TokenFile string
	Timeout   time.Duration     // how long Get waits for an answer
	NodeID    string            // by which the client introduces itself; there is a default
	Metadata  map[string]string // of its node
	Log       *slog.Logger      // what goes wrong and is tried again
	// Again is called when a watch is connected once more; nil for nobody.
	Again func(server string)
	// Waiting is called with the error when a watch begins to wait for a server that does not answer yet; nil for nobody.
	Waiting func(err error)
}

// Answer is what a server has of a kind at one moment.
type Answer struct {
	typeURL   string
	Resources []*resource.Resource // in key order
	Rejects   []error              // what could not be decoded
}

func (a *Answer) empty() bool { return len(a.Resources)+len(a.Rejects) == 0 }

// notYet is the error of a server that cannot be reached, or does not answer, and may soon.
type notYet struct{ error }

var errAnswered = errors.New("answered")

// Get returns what the server has of a kind.
func (c *XDS) Get(ctx context.Context, schema *resource.Schema) (*Answer, error) {
	answers, err := c.GetAll(ctx, []*resource.Schema{schema})
	if err != nil {
		return nil, err
	}
	return answers[0], nil
}

// GetAll returns what the server has of kinds, each of which is given once. All are asked for on one stream, so that who reads the server's
// log sees one client come and go; those of which there is nothing by their preferred version by the next one, on another: istiod serves a
// kind under one version only, which depends on its age, and answers the others with nothing.
func (c *XDS) GetAll(ctx context.Context, schemas []*resource.Schema) ([]*Answer, error) {
	answers := make([]*Answer, len(schemas))
	for version := 0; ; version++ {
		var asked []int
		for i, s := range schemas {
			if version < len(s.Versions) && (answers[i] == nil || answers[i].empty()) {
				asked = append(asked, i)
			}
		}
		if len(asked) == 0 {
			return answers, nil
		}
		err := c.until(ctx, func(answered func()) adsc.Config {
			left := len(asked)
			subs := make([]adsc.Subscription, left)
			for n, i := range asked {
				heard := false
				subs[n] = adsc.Subscription{TypeURL: typeURLsOf(schemas[i])[version], Handler: func(_ context.Context, r *adsc.Response) error {
					answers[i] = decode(r)
					if !heard {
						heard, left = true, left-1
					}
					if left == 0 {
						answered()
					}
					return nil
				}}
			}
			return c.objects(subs...)
		})
		if err != nil {
			return nil, err
		}
	}
}

// Debug returns a debug page of an istiod, such as configz. istiod serves it to identities of its root namespace.
func (c *XDS) Debug(ctx context.Context, page string) (text []byte, err error) {
	err = c.until(ctx, func(answered func()) adsc.Config {
		handler := func(_ context.Context, response *adsc.Response) error {
			for _, body := range response.Bodies() {
				text = body.GetValue()
			}
			answered()
			return nil
		}
		return c.config(adsc.Subscription{TypeURL: "istio.io/debug", Names: []string{page}, Handler: handler})
	})
	return text, err
}

func typeURLsOf(schema *resource.Schema) []string {
	urls := make([]string, len(schema.Versions))
	for i, v := range schema.Versions {
		urls[i] = schema.Group + "/" + v + "/" + string(schema.Kind)
	}
	return urls
}

// until runs a client until one of its handlers calls answered. The error says that this did not happen in time.
func (c *XDS) until(ctx context.Context, config func(answered func()) adsc.Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, notYet{fmt.Errorf(
		"%s did not answer within %s; a server that has not yet read its sources does not", c.Server, c.Timeout)})
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	cfg := config(func() { stop(errAnswered) })
	cfg.Backoff = func() backoff.BackOff { return &backoff.StopBackOff{} }
	client, err := adsc.New(cfg)
	if err != nil {
		return err
	}
	err = client.Run(ctx)
	if status.Code(err) == codes.DeadlineExceeded {
		<-ctx.Done() // gRPC tells the server our deadline, which may see it pass before we do
	}
	switch {
	case errors.Is(context.Cause(ctx), errAnswered):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return c.explain(err)
}

func (c *XDS) explain(err error) error {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) {
		return err
	}
	said := words.Plain(s.GRPCStatus().Message())
	if advice := adsc.Advice(err, "--node-id"); advice != "" {
		return fmt.Errorf("%s: %s: %s", c.Server, said, advice)
	}
	switch s.GRPCStatus().Code() {
	case codes.Unavailable:
		if strings.Contains(said, "frame too large") || strings.Contains(said, "HTTP/1.1") { // an answer in text, taken for a frame
			return fmt.Errorf("%s does not speak gRPC: it may be the admin port (listen.admin) of tributary; give the address of its port for xDS",
				c.Server)
		}
		err := fmt.Errorf("%s is unavailable: %s", c.Server, cmp.Or(words.ConnectionError(c.Server, said), said))
		if strings.Contains(said, "handshake") {
			return err // of TLS, which waiting does not help
		}
		return notYet{err}
	case codes.Unimplemented:
		if strings.Contains(said, "admin port of tributary") || strings.Contains(said, "unknown service") {
			return fmt.Errorf("%s does not serve xDS: it may be the admin port (listen.admin) of tributary; give the address of its port for xDS",
				c.Server)
		}
	}
	return fmt.Errorf("%s: %s (%s)", c.Server, said, s.GRPCStatus().Code())
}

// objects asks like istiod does of its config sources, so that any server of MCP takes us for one.
func (c *XDS) objects(subs ...adsc.Subscription) adsc.Config {
	cfg := c.config(subs...)
	// To istiod this means objects, not Envoy configuration.
	cfg.Node.Metadata.Fields["GENERATOR"] = structpb.NewStringValue("api")
	return cfg
}

func (c *XDS) config(subs ...adsc.Subscription) adsc.Config {
	connected := false
	fields := make(map[string]*structpb.Value, len(c.Metadata)+1)
	for k, v := range c.Metadata {
		fields[k] = structpb.NewStringValue(v)
	}
	node := &corev3.Node{UserAgentName: verify.CommandAgent, Metadata: &structpb.Struct{Fields: fields}}
	return adsc.Config{
		Addresses: []string{c.Server},
		TLS:       c.TLS,
		TokenFile: c.TokenFile,
		Node:      node,
		NodeIn: func(namespace string) *corev3.Node {
			node.Id = cmp.Or(c.NodeID, adsc.NodeID(verify.CommandAgent, namespace))
			return node
		},
		Subscriptions: subs,
		Backoff:       newBackoff,
		Hooks: adsc.Hooks{Connected: func(server string) {
			if connected && c.Again != nil {
				c.Again(server)
			}
			connected = true
		}},
		Log: c.Log,
	}
}

// maxRetryInterval is small: somebody watches.
const maxRetryInterval = 2 * time.Second

func newBackoff() backoff.BackOff {
	return backoff.NewExponentialBackOff(backoff.WithMaxInterval(maxRetryInterval), backoff.WithMaxElapsedTime(0))
}

// decode reads a response. What cannot be decoded is told, not dropped.
func decode(r *adsc.Response) *Answer {
	answer := &Answer{typeURL: r.TypeURL}
	for _, a := range r.Bodies() {
		res, err := decodeOne(r.TypeURL, a)
		if err != nil {
			answer.Rejects = append(answer.Rejects, fmt.Errorf("%s sent something invalid: %w", r.Server, err))
			continue
		}
		answer.Resources = append(answer.Resources, res)
	}
	slices.SortFunc(answer.Resources, func(a, b *resource.Resource) int { return a.Key().Compare(b.Key()) })
	return answer
}

// decodeOne is resource.DecodeMCP, but that it takes names without a namespace, "/name", which istiod gives to objects
// that it read from files. To istiod itself they are in the namespace default.
func decodeOne(typeURL string, a *anypb.Any) (*resource.Resource, error) {
	if res, err := resource.DecodeMCP(typeURL, a); err == nil {
		return res, nil
	}
	var m mcp.Resource
	if a.UnmarshalTo(&m) == nil && strings.HasPrefix(m.GetMetadata().GetName(), "/") {
		m.Metadata.Name = "default" + m.GetMetadata().GetName()
		if named, err := anypb.New(&m); err == nil {
			a = named
		}
	}
	return resource.DecodeMCP(typeURL, a)
}

// Change is what happened to an object.
type Change string

// The changes.
const (
	Added   Change = "added"
	Updated Change = "updated"
	Deleted Change = "deleted"
)

// Event is a change of one object, or of one resource of Envoy's. A deleted one is shown as it last was.
type Event[T any] struct {
	Change   Change
	Resource T
	Was      T // before an update, else nil
}

// Watch calls handle with what the server has of a kind, as additions, and then with each change, in key order, until
// ctx ends or handle fails. It tells nothing twice, also not after a reconnect. Watch waits for a server that does not answer yet, and
// reconnects later.
func (c *XDS) Watch(ctx context.Context, schema *resource.Schema, handle func(Event[*resource.Resource]) error) error {
	answer, err := c.Get(ctx, schema)
	for first := true; err != nil; first = false {
		if ctx.Err() != nil || !c.waits(err, first) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
		answer, err = c.Get(ctx, schema)
	}
	typeURLs := []string{answer.typeURL}
	if answer.empty() {
		typeURLs = typeURLsOf(schema)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	w := &watch{handle: handle, types: make([]objects, len(typeURLs)), shown: objects{}}
	subs := make([]adsc.Subscription, len(typeURLs))
	for i, typeURL := range typeURLs {
		subs[i] = adsc.Subscription{TypeURL: typeURL, Handler: func(_ context.Context, r *adsc.Response) error {
			answer := decode(r)
			if err := w.update(i, answer); err != nil {
				stop(err)
			}
			return errors.Join(answer.Rejects...)
		}}
	}
	client, err := adsc.New(c.objects(subs...))
	if err != nil {
		return err
	}
	_ = client.Run(ctx) // ends with ctx only, whose cause says more
	return context.Cause(ctx)
}

// waits reports whether a watch that failed with err before any answer goes on. It tells of the first time.
func (c *XDS) waits(err error, first bool) bool {
	_, ok := errors.AsType[notYet](err)
	if ok && first && c.Waiting != nil {
		c.Waiting(err)
	}
	return ok
}

type objects map[resource.Key]*resource.Resource

// watch is what a Watch knows. It is owned by the goroutine of the ADS client.
type watch struct {
	handle func(Event[*resource.Resource]) error
	types  []objects // by type URL, in order of preference
	shown  objects   // what handle was told
}

// update takes the state of one type, and tells what is different for it.
func (w *watch) update(i int, answer *Answer) error {
	now := objects{}
	for _, r := range answer.Resources {
		now[r.Key()] = r
	}
	w.types[i] = now

	next := objects{}
	for _, t := range slices.Backward(w.types) {
		maps.Copy(next, t)
	}
	events := changes(w.shown, next, resource.Key.Compare, resource.Equal)
	w.shown = next
	for _, e := range events {
		if err := w.handle(e); err != nil {
			return err
		}
	}
	return nil
}

// changes returns what leads from one state to another, in the order of the keys.
func changes[K comparable, T any](from, to map[K]T, compare func(a, b K) int, equal func(a, b T) bool) (events []Event[T]) {
	all := maps.Clone(from)
	maps.Copy(all, to)
	for _, key := range slices.SortedFunc(maps.Keys(all), compare) {
		was, before := from[key]
		is, after := to[key]
		switch {
		case !before:
			events = append(events, Event[T]{Change: Added, Resource: is})
		case !after:
			events = append(events, Event[T]{Change: Deleted, Resource: was})
		case !equal(was, is):
			events = append(events, Event[T]{Updated, is, was})
		}
	}
	return events
}

// quiet is a kind that hardly ever changes, so that a stream which asks for nothing else is idle.
const quiet = "networking.istio.io/v1beta1/ProxyConfig"

// Errors of Stay.
var (
	// ErrPings: whoever answers takes a ping every 30 s for an attack.
	ErrPings = errors.New("keepalive pings are refused")
	// ErrSilent: a ping was not answered, as if there were no connection any more.
	ErrSilent = errors.New("a keepalive ping was not answered")
	// ErrEnded: a stream that was answered has ended.
	ErrEnded = errors.New("an idle stream was ended")
)

// Stay opens a stream as an istiod does, which pings every 30 s, asks for a kind that hardly ever changes, and holds it for as long as
// hold. It calls answered once the server has, and returns how long the stream stood after that, which is up to hold. The error says that
// it ended before, or that there was no answer.
func (c *XDS) Stay(ctx context.Context, hold time.Duration, answered func()) (stood time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := time.AfterFunc(c.Timeout, func() {
		cancel(fmt.Errorf("%s did not answer within %s; a server that has not yet read its sources does not", c.Server, c.Timeout))
	})
	defer func() { over.Stop() }()

	var since time.Time // of the goroutine of Run
	cfg := c.objects(adsc.Subscription{TypeURL: quiet, Handler: func(context.Context, *adsc.Response) error {
		if since.IsZero() && over.Stop() {
			since = time.Now()
			answered() // while the stream stands, however short the hold
			over = time.AfterFunc(hold, func() { cancel(errAnswered) })
		}
		return nil
	}})
	cfg.Backoff = func() backoff.BackOff { return &backoff.StopBackOff{} }
	client, err := adsc.New(cfg)
	if err != nil {
		return 0, err
	}
	err = client.Run(ctx)
	switch {
	case errors.Is(context.Cause(ctx), errAnswered):
		return hold, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case since.IsZero():
		return 0, c.explain(err)
	}
	stood = time.Since(since)
	switch {
	case strings.Contains(err.Error(), "too_many_pings"):
		return stood, ErrPings
	case strings.Contains(err.Error(), "failed to receive ACK"):
		return stood, ErrSilent
	}
	return stood, fmt.Errorf("%w: %s", ErrEnded, words.Plain(status.Convert(err).Message()))
}
