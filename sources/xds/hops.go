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

// checkHeader reads the instances of tributary through which the server's configuration comes. It refuses a server that
// reads from this program: deleted resources would come back.
//
// A tributary names the instances in a header, and sends their changes as a type. Either may reveal a loop.
func (r *run) checkHeader(server string, header metadata.MD) error {
	headers := header.Get(names.InstancesHeader)
	if r.hops == nil {
		return nil
	}
	if len(headers) == 0 { // the server is no tributary
		delete(r.looped, server)
		r.setInstances(nil)
		r.client.Unsubscribe(names.InstancesType)
		return nil
	}
	instances := names.SplitInstances(headers[0])
	switch {
	case slices.Contains(instances, r.hops.Self()):
		r.setInstances(nil)
		return loopError(server)
	case r.looped[server]: // until it sends other instances
		r.setInstances(nil)
	default:
		r.addHeaderInstances(instances)
	}
	return r.client.Subscribe(adsc.Subscription{TypeURL: names.InstancesType, Handler: r.takeInstances})
}

// addHeaderInstances reports the instances of a header together with the stored ones, since a server that restarted
// does not know the instances of all its sources yet. It stores those of the header only if there are none.
func (r *run) addHeaderInstances(instances []string) {
	if r.instances == nil {
		r.instances = instances
	}
	merged := instances
	for _, id := range r.instances {
		if len(merged) < names.MaxInstances && !slices.Contains(instances, id) {
			merged = append(merged, id)
		}
	}
	r.reportHops(merged)
}

// takeInstances takes a change of the server's instances.
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
			r.client.Unsubscribe(names.InstancesType) // the next stream subscribes again and gets the current ones
			return &adsc.RefusedError{Err: loopError(resp.Server)}
		}
		if r.looped[resp.Server] {
			delete(r.looped, resp.Server)
			r.client.Reconnect() // another stream brings the resources that were refused
		}
		r.setInstances(instances)
	}
	return nil
}

// loopWith returns an error for a server that reads from this program, until it sends other instances; else nil.
func (r *run) loopWith(server string) error {
	if r.looped[server] {
		return loopError(server)
	}
	return nil
}

// setInstances replaces the instances of the server.
func (r *run) setInstances(instances []string) {
	r.instances = instances
	r.reportHops(instances)
}

// reportHops publishes the instances through which the configuration comes.
func (r *run) reportHops(instances []string) {
	if r.hops != nil {
		r.hops.Reads(r, instances)
	}
}

// loopError is the refusal of a server that reads from this program.
func loopError(server string) error {
	return status.Errorf(codes.FailedPrecondition,
		"a loop: %s reads from this tributary, directly or through others; remove one of the sources", server)
}
