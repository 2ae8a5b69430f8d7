package adsc

import (
	"context"

	"google.golang.org/protobuf/types/known/anypb"
)

// Handler takes a response. It is called on the goroutine of Client.Run, one response at a time, and while it works no
// more than one other is read: a slow handler slows the server down, and nothing queues. The response is acknowledged
// when the handler returns nil; its error is sent to the server as the reason why the response was rejected, so it
// should name the resources that are at fault. Nothing of a rejected response counts as known, and all of it comes again on
// the next stream; a handler that took it in part returns a RejectedError, and one that wants no more of the server a
// RefusedError. ctx is that of Run.
type Handler func(ctx context.Context, r *Response) error

// Response is what a server sent of one type. A handler may keep it, since nobody modifies it, and so must not the handler.
type Response struct {
	TypeURL string
	// Version is the server's version of the type; it is opaque and may be empty.
	Version string
	// Resources are those that are there, new or not.
	Resources []Resource
	// Removed are the names of those that have gone; only in delta mode.
	Removed []string
	// Complete says that everything of what was asked for is in this response, or, if More is set, in this one and those
	// of the type that follow, up to and including the first without More. What is not among it has gone. What a
	// stream that ended began is not gone on with; see Hooks.Connected.
	Complete bool
	// More says that the server has cut a response, of which the rest follows.
	More bool
	// Delta says which variant of the protocol it came by.
	Delta bool
	// Server is the address that the response came from.
	Server string
	// ControlPlane is how the server identifies itself; often empty.
	ControlPlane string
}

// Resource is one element of a response.
type Resource struct {
	// Name and Version are set in delta mode only: in the other they are inside the body, if anywhere. So are Aliases, other
	// names that it can be asked for by.
	Name, Version string
	Aliases       []string
	// Body is what the server sent, not checked; nil if it sent nothing.
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
