package access

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Stream is a grpc.StreamServerInterceptor.
func (g *Guard) Stream(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	ctx, leave, err := g.enter(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer leave()
	return handler(server, &guardedStream{stream, ctx})
}

// Unary is a grpc.UnaryServerInterceptor.
func (g *Guard) Unary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	ctx, leave, err := g.enter(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer leave()
	return handler(ctx, request)
}

// enter admits a client to a method. The caller calls leave after the stream or call. A single health check needs no
// rights: load balancers send it, and the answer reveals no object.
func (g *Guard) enter(ctx context.Context, method string) (_ context.Context, leave func(), err error) {
	if strings.HasPrefix(method, "/grpc.health.") && !strings.HasSuffix(method, "/Watch") {
		return ctx, func() {}, nil
	}
	ctx, client, err := g.admit(ctx)
	if err != nil {
		return nil, nil, err
	}
	switch service := serviceOf(method); service {
	case discovery: // RightsOf decides by the node of the first request
	case "":
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

// discovery stands for xDS and watches of the health, which need no named service.
const discovery = "discovery"

// serviceOf returns the service that permissions name for a method. It is empty for unknown methods.
func serviceOf(method string) string {
	for _, service := range [][2]string{
		{"/envoy.service.status.", CSDS},
		{"/envoy.service.", discovery},
		{"/grpc.health.v1.Health/Watch", discovery},
		{"/grpc.reflection.", Reflection},
		{"/grpc.channelz.", Channelz},
	} {
		if strings.HasPrefix(method, service[0]) {
			return service[1]
		}
	}
	return ""
}

// guardedStream ends when the client loses its identity or rights.
type guardedStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // of the stream
}

// Context implements grpc.ServerStream.
func (s *guardedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream. Handlers that do not watch the context get no further request.
func (s *guardedStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return context.Cause(s.ctx)
}
