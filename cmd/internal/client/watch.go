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
