package xds

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/adsc"
	"tributary/internal/names"
)

// accept looks at what the server says of the way of what it has, and refuses it if that leads through this program: what
// has gone would come back.
//
// A tributary names the instances in a header, as they are then, and answers for them as a type when they change. Either may
// be what tells of a loop.
func (r *run) accept(server string, header metadata.MD) error {
	told := header.Get(names.InstancesHeader)
	if r.hops == nil {
		return nil
	}
	if len(told) == 0 { // it is no tributary
		delete(r.looped, server)
		r.setInstances(nil)
		r.client.Unsubscribe(names.InstancesType)
		return nil
	}
	instances := names.SplitInstances(told[0])
	switch {
	case slices.Contains(instances, r.hops.Self()):
		r.setInstances(nil)
		return loop(server)
	case r.looped[server]: // until it says otherwise
		r.setInstances(nil)
	default:
		r.begin(instances)
	}
	return r.client.Subscribe(adsc.Subscription{TypeURL: names.InstancesType, Handler: r.takeInstances})
}

// begin notes what a header names. The server may have restarted and not know yet all that it reads from, so that what it
// said before holds, too, until it answers for the type. What headers named before does not.
func (r *run) begin(named []string) {
	if r.said == nil {
		r.said = named
	}
	all := named
	for _, id := range r.said {
		if len(all) < names.MaxInstances && !slices.Contains(named, id) {
			all = append(all, id)
		}
	}
	r.reportHops(all)
}

// takeInstances takes what has become of what the server said at first.
func (r *run) takeInstances(_ context.Context, resp *adsc.Response) error {
	for _, body := range resp.Bodies() {
		var text wrapperspb.StringValue
		if err := body.UnmarshalTo(&text); err != nil {
			return err
		}
		instances := names.SplitInstances(text.GetValue())
		if slices.Contains(instances, r.hops.Self()) {
			r.looped[resp.Server] = true
			r.setInstances(nil)
			r.client.Unsubscribe(names.InstancesType) // the next stream asks anew: what the server said before is no longer so
			return &adsc.RefusedError{Err: loop(resp.Server)}
		}
		if r.looped[resp.Server] {
			delete(r.looped, resp.Server)
			r.client.Reconnect() // what was not taken meanwhile comes on another stream
		}
		r.setInstances(instances)
	}
	return nil
}

// loopWith returns why nothing of a server is taken, or nil: it is known to read from us, until it says otherwise.
func (r *run) loopWith(server string) error {
	if r.looped[server] {
		return loop(server)
	}
	return nil
}

// setInstances notes what the server says, and that all that is read comes that way.
func (r *run) setInstances(instances []string) {
	r.said = instances
	r.reportHops(instances)
}

// reportHops notes through which instances what is read comes.
func (r *run) reportHops(instances []string) {
	if r.hops != nil {
		r.hops.Reads(r, instances)
	}
}

// loop is why a server that reads from us is refused.
func loop(server string) error {
	return status.Errorf(codes.FailedPrecondition,
		"a loop: %s reads from this tributary, be it through others; remove one of the sources", server)
}
