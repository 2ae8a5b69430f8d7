package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"tributary/adsc"
)

// EnvoyType is a type of Envoy's that a server can be asked for as a whole.
type EnvoyType struct {
	Name   string // as people write it
	URL    string
	parent string // the type that says which there are; empty if the server does
}

// EnvoyTypes returns the types that there are.
func EnvoyTypes() []EnvoyType {
	return []EnvoyType{
		{"clusters", adsc.ClusterType, ""},
		{"endpoints", adsc.EndpointType, adsc.ClusterType},
		{"listeners", adsc.ListenerType, ""},
		{"routes", adsc.RouteType, adsc.ListenerType},
	}
}

// EnvoyAnswer is what a server has of a type at one moment.
type EnvoyAnswer struct {
	Resources []proto.Message // in order of name
	Missing   []string        // what other resources refer to, and the server did not answer
	Rejects   []error         // what could not be decoded
}

// GetEnvoy returns what the server has of a type. Of routes and endpoints these are those that listeners and clusters refer
// to. If not all of them are answered in time, the answer says which are missing.
func (c *XDS) GetEnvoy(ctx context.Context, t EnvoyType) (*EnvoyAnswer, error) {
	s := newEnvoyState(t)
	err := c.until(ctx, func(answered func()) adsc.Config {
		return c.config(s.subscriptions(func() {
			if s.complete() {
				answered()
			}
		})...)
	})
	if err != nil && (!s.listed || ctx.Err() != nil) {
		return nil, err
	}
	return s.answer(), nil
}

// WatchEnvoy calls handle with what the server has of a type, as additions, and then with each change, in order of name,
// until ctx ends or handle fails. It tells nothing twice, also not after a reconnect. It waits as Watch does.
func (c *XDS) WatchEnvoy(ctx context.Context, t EnvoyType, handle func(Event[proto.Message]) error) error {
	s := newEnvoyState(t)
	answered, first := false, true
	shown := map[string]proto.Message{}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	tell := func() {
		answered = true
		for _, e := range changes(shown, s.have, strings.Compare, proto.Equal) {
			if err := handle(e); err != nil {
				stop(err)
				return
			}
		}
		shown = maps.Clone(s.have)
	}
	cfg := c.config(s.subscriptions(tell)...)
	cfg.Hooks.Failed = func(err error, _ time.Duration) {
		if answered {
			return
		}
		if err := c.explain(err); !c.waits(err, first) {
			stop(err)
		}
		first = false
	}
	client, err := adsc.New(cfg)
	if err != nil {
		return err
	}
	_ = client.Run(ctx) // ends with ctx only, whose cause says more
	return context.Cause(ctx)
}

// envoyState is what a server has said so far of a type and its parents. It is owned by the goroutine of the ADS client.
type envoyState struct {
	typ      EnvoyType
	listed   bool                     // it is known which resources there are
	names    map[string]bool          // that the parents refer to
	have     map[string]proto.Message // of the type
	rejected []error                  // of the last response of the type
}

func newEnvoyState(t EnvoyType) *envoyState {
	return &envoyState{typ: t, have: map[string]proto.Message{}}
}

// subscriptions asks for what is needed, and calls changed after each response.
func (s *envoyState) subscriptions(changed func()) []adsc.Subscription {
	subs := []adsc.Subscription{{TypeURL: s.typ.URL, Follow: s.typ.parent != "", Handler: func(_ context.Context, r *adsc.Response) error {
		s.rejected = s.take(r)
		changed()
		return errors.Join(s.rejected...)
	}}}
	if s.typ.parent == "" {
		return subs
	}
	return append(subs, adsc.Subscription{TypeURL: s.typ.parent, Handler: func(_ context.Context, r *adsc.Response) error {
		s.names, s.listed = map[string]bool{}, true
		for _, body := range r.Bodies() {
			for _, name := range adsc.References(body) {
				s.names[name] = true
			}
		}
		maps.DeleteFunc(s.have, func(name string, _ proto.Message) bool { return !s.names[name] })
		changed()
		return nil
	}})
}

// take takes a response of the type itself, and returns what is wrong with it.
func (s *envoyState) take(r *adsc.Response) (rejects []error) {
	if s.typ.parent == "" {
		s.listed = true
		clear(s.have) // each response has everything
	}
	for i, body := range r.Bodies() {
		m, err := body.UnmarshalNew()
		if err != nil {
			rejects = append(rejects, fmt.Errorf("%s sent something invalid: resource %d of %s: %w", r.Server, i, r.TypeURL, err))
			continue
		}
		s.have[NameOf(m)] = m
	}
	return rejects
}

// NameOf returns the name of a resource.
func NameOf(m proto.Message) string {
	fields := m.ProtoReflect().Descriptor().Fields()
	for _, name := range []protoreflect.Name{"name", "cluster_name"} {
		if f := fields.ByName(name); f != nil && f.Kind() == protoreflect.StringKind {
			return m.ProtoReflect().Get(f).String()
		}
	}
	return ""
}

func (s *envoyState) missing() (names []string) {
	for name := range s.names {
		if s.have[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *envoyState) complete() bool { return s.listed && len(s.missing()) == 0 }

func (s *envoyState) answer() *EnvoyAnswer {
	a := &EnvoyAnswer{Missing: s.missing(), Rejects: s.rejected}
	for _, name := range slices.Sorted(maps.Keys(s.have)) {
		a.Resources = append(a.Resources, s.have[name])
	}
	return a
}
