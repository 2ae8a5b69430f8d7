package access

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Stream is a grpc.StreamServerInterceptor.
func (a *Admission) Stream(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	ctx, leave, err := a.enter(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer leave()
	return handler(server, &admittedStream{stream, ctx})
}

// Unary is a grpc.UnaryServerInterceptor.
func (a *Admission) Unary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	ctx, leave, err := a.enter(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer leave()
	return handler(ctx, request)
}

// enter admits a client to a method. The caller calls leave after the stream or call. A single health check needs no
// rights: load balancers send it, and the answer reveals no object.
func (a *Admission) enter(ctx context.Context, method string) (_ context.Context, leave func(), err error) {
	if strings.HasPrefix(method, "/grpc.health.") && !strings.HasSuffix(method, "/Watch") {
		return ctx, func() {}, nil
	}
	ctx, client, err := a.admit(ctx)
	if err != nil {
		return nil, nil, err
	}
	switch service := serviceOf(method); service {
	case discovery: // RightsOf decides by the node ID of the first request
	case "": // an unknown method
		err = status.Error(codes.Unimplemented, "this service is not served to clients")
	default:
		err = RequireService(ctx, service)
	}
	if err != nil {
		client.leave()
		return nil, nil, err
	}
	return ctx, client.leave, nil
}

// discovery stands for xDS and watches of the health, which every admitted client may use.
const discovery = "discovery"

// serviceOf returns the service that permissions name for a method. It is empty for unknown methods.
func serviceOf(method string) string {
	for _, service := range []struct{ methods, name string }{
		{"/envoy.service.status.", CSDS},
		{"/envoy.service.", discovery},
		{"/grpc.health.v1.Health/Watch", discovery},
		{"/grpc.reflection.", Reflection},
		{"/grpc.channelz.", Channelz},
	} {
		if strings.HasPrefix(method, service.methods) {
			return service.name
		}
	}
	return ""
}

// admittedStream ends when the identity or the rights of the client change.
type admittedStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // of the stream
}

// Context implements grpc.ServerStream.
func (s *admittedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream. Handlers that do not watch the context get no further request.
func (s *admittedStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return context.Cause(s.ctx)
}
