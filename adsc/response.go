package adsc

import (
	"context"

	"google.golang.org/protobuf/types/known/anypb"
)

// Handler takes a response. It is called on the goroutine of Client.Run, one response at a time, and while it works no
// more than one other is read: a slow handler slows the server down, and nothing queues. The response is acknowledged
// when the handler returns nil; its error is sent to the server as the reason why the response was rejected, so it
// should name the resources at fault. A rejected response comes again on the next stream. A handler that took a part of
// it returns a RejectedError, and one that refuses the server a RefusedError. ctx is that of Run.
type Handler func(ctx context.Context, r *Response) error

// Response is a response of a server for one type. It is immutable; a handler may keep it and must not modify it.
type Response struct {
	TypeURL string
	// Version is the server's version of the type; it is opaque and may be empty.
	Version string
	// Resources are existing resources, changed or not.
	Resources []Resource
	// Removed are the names of deleted resources; only in delta mode.
	Removed []string
	// Complete says that this response has all requested resources, or, if More is set, together with the following ones
	// of the type up to the first without More. Other resources are deleted. A set never continues on another stream; see
	// Hooks.Connected.
	Complete bool
	// More says that the server split a response, and its rest follows.
	More bool
	// Delta says that it came by the delta variant of the protocol.
	Delta bool
	// Server is the address of the server.
	Server string
	// ControlPlane is the server's identifier; often empty.
	ControlPlane string
}

// Resource is one element of a response.
type Resource struct {
	// Name and Version are set in delta mode only: otherwise they are inside the body, if anywhere. So are Aliases, other
	// names of the resource.
	Name, Version string
	Aliases       []string
	// Body is the unchecked resource; nil without one.
	Body *anypb.Any
}

// Bodies returns the bodies of r's resources.
func (r *Response) Bodies() []*anypb.Any {
	bodies := make([]*anypb.Any, len(r.Resources))
	for i := range r.Resources {
		bodies[i] = r.Resources[i].Body
	}
	return bodies
}
