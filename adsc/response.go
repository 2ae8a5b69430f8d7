package adsc

import (
	"context"

	"google.golang.org/protobuf/types/known/anypb"
)

// Handler handles a response. ctx is that of Run.
//
// Client.Run calls handlers on its goroutine, for one response at a time. Meanwhile it reads at most one more response,
// so that a slow handler slows the server down.
//
// If the handler returns nil, the client acknowledges the response. An error rejects it:
//   - A RejectedError rejects the resources that it names, and accepts the others.
//   - A RefusedError ends the stream, as if the server had refused the client.
//   - Any other error rejects all resources. The server sends them again on the next stream.
//
// The client sends the text of a rejection to the server as the reason, so it should name the resources at fault.
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
	// Complete says that this response belongs to a set of all requested resources. The set ends with the first response
	// of the type without More, and resources outside the set are deleted. A set never continues on another stream; see
	// Hooks.Connected.
	Complete bool
	// More says that the server split a response, and its rest follows.
	More bool
	// Delta says that the stream uses the delta variant of the protocol.
	Delta bool
	// Server is the address of the server.
	Server string
	// ControlPlane is the server's identifier; often empty.
	ControlPlane string
}

// Resource is one element of a response.
type Resource struct {
	// Name, Version and Aliases (further names) are set in delta mode only. In state of the world, the body may have them.
	Name, Version string
	Aliases       []string
	// Body is the resource, unchecked; nil if the server sent none.
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
