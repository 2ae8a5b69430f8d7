package xds

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/adsc"
	"tributary/internal/hops"
)

// accept looks at what the server says of the way of what it has, and refuses it if that leads through this program: what
// has gone would come back.
func (r *run) accept(server string, header metadata.MD) error {
	told := header.Get(hops.Header)
	if r.hops == nil {
		return nil
	}
	if len(told) == 0 { // it is no tributary
		r.through(nil)
		r.client.Unsubscribe(hops.TypeURL)
		return nil
	}
	instances := hops.Parse(told[0])
	if slices.Contains(instances, r.hops.Self()) {
		r.through(nil)
		return status.Errorf(codes.FailedPrecondition,
			"a loop: %s reads from this tributary, be it through others; remove one of the sources", server)
	}
	// It may have restarted and not know yet all that it reads from, which it then says in an answer to the subscription.
	for _, id := range r.instances {
		if !slices.Contains(instances, id) {
			instances = append(instances, id)
		}
	}
	r.through(instances)
	return r.client.Subscribe(adsc.Subscription{TypeURL: hops.TypeURL, Handler: r.takeInstances})
}

// takeInstances takes what has become of what the server said at first.
func (r *run) takeInstances(_ context.Context, resp *adsc.Response) error {
	for _, body := range resp.Bodies() {
		var text wrapperspb.StringValue
		if err := body.UnmarshalTo(&text); err != nil {
			return err
		}
		instances := hops.Parse(text.GetValue())
		if slices.Contains(instances, r.hops.Self()) {
			r.client.Reconnect() // which accept looks at
			return nil
		}
		r.through(instances)
	}
	return nil
}

// through notes through which instances what is read comes.
func (r *run) through(instances []string) {
	if r.hops != nil {
		r.instances = instances
		r.hops.Reads(r, instances)
	}
}
