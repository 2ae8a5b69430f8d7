package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"tributary/adsc"
	"tributary/resource"
)

// Change is the kind of an event.
type Change string

// The changes.
const (
	Added   Change = "added"
	Updated Change = "updated"
	Deleted Change = "deleted"
)

// Event is a change of an object or of an Envoy resource. A deletion has the last version.
type Event[T any] struct {
	Change   Change
	Resource T
	Previous T // of an update, else nil
}

// Watch calls handle with additions for the server's objects of a kind, and then with each change, in key order, until
// ctx ends or handle fails. Watch waits for a server that does not answer yet, and reconnects later. A reconnect
// repeats no event.
func (x *XDS) Watch(ctx context.Context, schema *resource.Schema, handle func(Event[*resource.Resource]) error) error {
	answer, err := x.Get(ctx, schema)
	for first := true; err != nil; first = false {
		if ctx.Err() != nil || !x.keepsWaiting(err, first) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
		answer, err = x.Get(ctx, schema)
	}
	urls := []string{answer.typeURL}
	if answer.empty() {
		urls = schema.TypeURLs()
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	state := &watch{handle: handle, byType: make([]objects, len(urls)), shown: objects{}}
	subscriptions := make([]adsc.Subscription, len(urls))
	for index, typeURL := range urls {
		subscriptions[index] = adsc.Subscription{
			TypeURL: typeURL,
			Handler: func(_ context.Context, response *adsc.Response) error {
				answer := decode(response)
				if err := state.update(index, answer); err != nil {
					stop(err)
				}
				return errors.Join(answer.Rejects...)
			},
		}
	}
	client, err := adsc.New(x.objectConfig(subscriptions...))
	if err != nil {
		return err
	}
	_ = client.Run(ctx) // the cause of ctx is more precise
	return context.Cause(ctx)
}

// keepsWaiting reports whether a watch continues after an error before any answer. It calls Waiting for the first one.
func (x *XDS) keepsWaiting(err error, first bool) bool {
	_, ok := errors.AsType[unavailableError](err)
	if ok && first && x.Waiting != nil {
		x.Waiting(err)
	}
	return ok
}

type objects map[resource.Key]*resource.Resource

// watch is the state of a Watch. The goroutine of the ADS client owns it.
type watch struct {
	handle func(Event[*resource.Resource]) error
	byType []objects // by type URL, in order of preference
	shown  objects   // reported to handle
}

// update sets the objects of one type URL, and reports the differences.
func (w *watch) update(index int, answer *Answer) error {
	current := objects{}
	for _, object := range answer.Resources {
		current[object.Key()] = object
	}
	w.byType[index] = current

	next := objects{}
	for _, typed := range slices.Backward(w.byType) {
		maps.Copy(next, typed)
	}
	events := changes(w.shown, next, resource.Key.Compare, resource.Equal)
	w.shown = next
	for _, event := range events {
		if err := w.handle(event); err != nil {
			return err
		}
	}
	return nil
}

// changes returns the events that lead from one state to another, in key order.
func changes[K comparable, T any](from, to map[K]T, compare func(a, b K) int,
	equal func(a, b T) bool,
) (events []Event[T]) {
	keys := maps.Clone(from)
	maps.Copy(keys, to)
	for _, key := range slices.SortedFunc(maps.Keys(keys), compare) {
		previous, inFrom := from[key]
		current, inTo := to[key]
		switch {
		case !inFrom:
			events = append(events, Event[T]{Change: Added, Resource: current})
		case !inTo:
			events = append(events, Event[T]{Change: Deleted, Resource: previous})
		case !equal(previous, current):
			events = append(events, Event[T]{Updated, current, previous})
		}
	}
	return events
}
