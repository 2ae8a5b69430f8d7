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

	"tributary/adsc"
	"tributary/server/xds"
)

// EnvoyType is an xDS type that a client can list.
type EnvoyType struct {
	Name   string // for people
	URL    string
	parent string // the type that names the resources; empty if the server lists them
}

// EnvoyTypes returns the supported types.
func EnvoyTypes() []EnvoyType {
	return []EnvoyType{
		{"clusters", adsc.ClusterType, ""},
		{"endpoints", adsc.EndpointType, adsc.ClusterType},
		{"listeners", adsc.ListenerType, ""},
		{"routes", adsc.RouteType, adsc.ListenerType},
	}
}

// EnvoyAnswer has a server's resources of a type at one moment.
type EnvoyAnswer struct {
	Resources []proto.Message // in order of name
	Missing   []string        // names that other resources refer to, without an answer
	Rejects   []error         // decoding errors
}

// GetEnvoy returns the resources of a type. Routes and endpoints are those that listeners and clusters refer to. After
// a timeout, the answer names the missing ones.
func (x *XDS) GetEnvoy(ctx context.Context, envoyType EnvoyType) (*EnvoyAnswer, error) {
	state := newEnvoyState(envoyType)
	err := x.runUntil(ctx, state.start, func(answered func()) adsc.Config {
		return x.clientConfig(state.subscription(func() {
			if state.complete() {
				answered()
			}
		}))
	})
	if err != nil && (!state.listed || ctx.Err() != nil) {
		return nil, err
	}
	return state.answer(), nil
}

// WatchEnvoy calls handle with additions for the server's resources of a type, and then with each change, in order of
// name, until ctx ends or handle fails. A reconnect repeats no event. WatchEnvoy waits for the server like Watch.
func (x *XDS) WatchEnvoy(ctx context.Context, envoyType EnvoyType, handle func(Event[proto.Message]) error) error {
	state := newEnvoyState(envoyType)
	answered, firstFailure := false, true
	shown := map[string]proto.Message{}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	handleChanges := func() {
		answered = true
		for _, event := range changes(shown, state.current(), strings.Compare, proto.Equal) {
			if err := handle(event); err != nil {
				stop(err)
				return
			}
		}
		shown = maps.Clone(state.current())
	}
	config := x.clientConfig(state.subscription(handleChanges))
	config.Hooks.Failed = func(err error, _ time.Duration) {
		if answered {
			return
		}
		if err := x.explainError(err); !x.keepsWaiting(err, firstFailure) {
			stop(err)
		}
		firstFailure = false
	}
	client, err := state.start(config)
	if err != nil {
		return err
	}
	_ = client.Run(ctx) // the cause of ctx is more precise
	return context.Cause(ctx)
}

// envoyState has the answers for a type and its parent. The goroutine of the ADS client owns it.
type envoyState struct {
	envoyType  EnvoyType
	listed     bool                     // the names of the resources are known
	names      map[string]bool          // that the parents refer to
	subscribed map[string]bool          // the names; the last ones while the parents refer to none
	resources  map[string]proto.Message // of the type
	rejected   []error                  // of the last response of the type
	client     *adsc.Client
}

func newEnvoyState(envoyType EnvoyType) *envoyState {
	return &envoyState{envoyType: envoyType, resources: map[string]proto.Message{}}
}

// start makes the client of the subscription.
func (s *envoyState) start(config adsc.Config) (client *adsc.Client, err error) {
	s.client, err = adsc.New(config)
	return s.client, err
}

// subscription returns the subscription to the type, or to its parent, which then subscribes to the type by the names
// that the parents refer to. changed is called after each response.
func (s *envoyState) subscription(changed func()) adsc.Subscription {
	resources := adsc.Subscription{
		TypeURL: s.envoyType.URL,
		Handler: func(_ context.Context, response *adsc.Response) error {
			s.rejected = s.applyResponse(response)
			changed()
			return errors.Join(s.rejected...)
		},
	}
	if s.envoyType.parent == "" {
		return resources
	}
	return adsc.Subscription{
		TypeURL: s.envoyType.parent,
		Handler: func(_ context.Context, response *adsc.Response) (err error) {
			s.names, s.listed = map[string]bool{}, true
			for _, body := range response.Bodies() {
				for _, name := range adsc.References(body) {
					s.names[name] = true
				}
			}
			if len(s.names) > 0 { // no names would mean all
				s.subscribed, resources.Names = s.names, slices.Collect(maps.Keys(s.names))
				maps.DeleteFunc(s.resources, func(name string, _ proto.Message) bool { return !s.subscribed[name] })
				err = s.client.Subscribe(resources)
			}
			changed()
			return err
		},
	}
}

// applyResponse applies a response of the type, and returns the decoding errors.
func (s *envoyState) applyResponse(response *adsc.Response) (rejects []error) {
	if s.envoyType.parent == "" {
		s.listed = true
		clear(s.resources) // each response is complete
	}
	for index, body := range response.Bodies() {
		message, err := body.UnmarshalNew()
		if err != nil {
			rejects = append(rejects, fmt.Errorf("%s sent something invalid: resource %d of %s: %w", response.Server, index,
				response.TypeURL, err))
			continue
		}
		if name := xds.NameOf(message); s.envoyType.parent == "" || s.subscribed[name] {
			s.resources[name] = message
		}
	}
	return rejects
}

// current returns the resources, but none while the parents refer to none.
func (s *envoyState) current() map[string]proto.Message {
	if s.envoyType.parent != "" && len(s.names) == 0 {
		return map[string]proto.Message{}
	}
	return s.resources
}

func (s *envoyState) missing() (names []string) {
	for name := range s.names {
		if s.resources[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *envoyState) complete() bool { return s.listed && len(s.missing()) == 0 }

func (s *envoyState) answer() *EnvoyAnswer {
	answer := &EnvoyAnswer{Missing: s.missing(), Rejects: s.rejected}
	for _, name := range slices.Sorted(maps.Keys(s.current())) {
		answer.Resources = append(answer.Resources, s.resources[name])
	}
	return answer
}
