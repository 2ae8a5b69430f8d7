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

// Event is a change of one object. A deleted one is shown as it last was.
type Event struct {
	Change   Change
	Resource *resource.Resource
	Was      *resource.Resource // before an update, else nil
}

// Watch calls handle with what the server has of a kind, as additions, and then with each change, in key order, until
// ctx ends or handle fails. It tells nothing twice, also not after a reconnect. Watch waits for a server that does not answer yet, and
// reconnects later.
func (c *XDS) Watch(ctx context.Context, schema *resource.Schema, handle func(Event) error) error {
	typeURLs, _, err := c.find(ctx, schema)
	for first := true; err != nil; first = false {
		if ctx.Err() != nil || !c.waits(err, first) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
		typeURLs, _, err = c.find(ctx, schema)
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
	handle func(Event) error
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
	events := compare(w.shown, next)
	w.shown = next
	for _, e := range events {
		if err := w.handle(e); err != nil {
			return err
		}
	}
	return nil
}

// compare returns what leads from one state to another, in key order.
func compare(from, to objects) []Event {
	var events []Event
	for key, r := range to {
		switch old := from[key]; {
		case old == nil:
			events = append(events, Event{Change: Added, Resource: r})
		case !resource.Equal(old, r):
			events = append(events, Event{Updated, r, old})
		}
	}
	for key, r := range from {
		if to[key] == nil {
			events = append(events, Event{Change: Deleted, Resource: r})
		}
	}
	slices.SortFunc(events, func(a, b Event) int { return a.Resource.Key().Compare(b.Resource.Key()) })
	return events
}
