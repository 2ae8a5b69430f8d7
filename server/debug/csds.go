package debug

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"tributary/internal/turns"
	"tributary/server/xds"
)

// CSDS is the client status discovery service. An answer about thousands of clients has megabytes, and a client may not
// read it. So one answer is made at a time, in turns with other heavy work, and the memory of all answers is limited.
type CSDS struct {
	answer func(context.Context, *statusv3.ClientStatusRequest) (any, error)

	// Only a service by NewCSDS has these.
	clients Clients
	turns   *turns.Turns
	memory  *memory
}

// NewCSDS returns the service with the status of the connected clients.
func NewCSDS(clients Clients) *CSDS {
	service := &CSDS{clients: clients, turns: turns.New(1), memory: new(memory)}
	service.answer = func(ctx context.Context, request *statusv3.ClientStatusRequest) (any, error) {
		return service.encode(ctx, request)
	}
	return service
}

// NewUpstreamCSDS returns the service with the status of this program as a client of a few servers.
func NewUpstreamCSDS(upstreams func() []*statusv3.ClientConfig) *CSDS {
	return &CSDS{answer: func(_ context.Context, request *statusv3.ClientStatusRequest) (any, error) {
		matches, err := nodeMatcher(request.GetNodeMatchers())
		if err != nil {
			return nil, err
		}
		return &statusv3.ClientStatusResponse{
			Config: slices.DeleteFunc(upstreams(), func(config *statusv3.ClientConfig) bool {
				return !matches(config.GetNode())
			}),
		}, nil
	}}
}

// Register adds the service to a server. The server of NewCSDS needs a codec that passes on a mem.BufferSlice, like
// that of package xds.
func (c *CSDS) Register(registrar grpc.ServiceRegistrar) {
	service := statusv3.ClientStatusDiscoveryService_ServiceDesc
	service.HandlerType = nil // the methods of the generated interface cannot return encoded answers
	service.Methods = []grpc.MethodDesc{{MethodName: service.Methods[0].MethodName, Handler: c.fetch}}
	service.Streams = slices.Clone(service.Streams)
	service.Streams[0].Handler = c.stream
	registrar.RegisterService(&service, nil)
}

//nolint:revive // gRPC's order
func (c *CSDS) fetch(
	_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor,
) (any, error) {
	request := &statusv3.ClientStatusRequest{}
	if err := decode(request); err != nil {
		return nil, err
	}
	if intercept == nil {
		return c.answer(ctx, request)
	}
	method := statusv3.ClientStatusDiscoveryService_FetchClientStatus_FullMethodName
	return intercept(ctx, request, &grpc.UnaryServerInfo{Server: c, FullMethod: method},
		func(ctx context.Context, _ any) (any, error) { return c.answer(ctx, request) })
}

// stream answers each request.
func (c *CSDS) stream(_ any, stream grpc.ServerStream) error {
	for {
		request := &statusv3.ClientStatusRequest{}
		err := stream.RecvMsg(request)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var answer any
		if err == nil {
			answer, err = c.answer(stream.Context(), request)
		}
		if err == nil {
			err = stream.SendMsg(answer)
		}
		if err != nil {
			return err
		}
	}
}

// configField is the field number of ClientStatusResponse.config.
const configField protowire.Number = 1

// encode returns the encoded ClientStatusResponse to a request.
func (c *CSDS) encode(ctx context.Context, request *statusv3.ClientStatusRequest) (answer mem.BufferSlice, err error) {
	matches, err := nodeMatcher(request.GetNodeMatchers())
	if err != nil {
		return nil, err
	}
	turnErr := c.turns.Do(ctx, xds.HostOf(ctx), func() {
		var body []byte
		err = eachClient(ctx, c.clients, func(client *xds.ClientStatus) (err error) {
			if !matches(client.Node) {
				return nil
			}
			config := clientConfig(client)
			size := proto.Size(config)
			if len(body)+size > maxAnswer {
				return status.Errorf(codes.ResourceExhausted,
					"the answer has more than %d bytes: ask for fewer nodes", maxAnswer)
			}
			body = protowire.AppendVarint(protowire.AppendTag(body, configField, protowire.BytesType), uint64(size))
			body, err = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(body, config)
			return err
		})
		if err == nil {
			answer, err = c.keep(slices.Clone(body))
		}
	})
	if turnErr != nil {
		return nil, contextStatus(ctx)
	}
	return answer, err
}

// keep returns the buffer of an answer, and counts it as memory until it is garbage: gRPC does not report when it is
// sent.
func (c *CSDS) keep(body []byte) (mem.BufferSlice, error) {
	if len(body) == 0 {
		return nil, nil
	}
	size := int64(len(body))
	if err := c.memory.reserve(size); err != nil {
		return nil, err
	}
	memory := c.memory // the cleanup must not refer to the body
	runtime.AddCleanup(&body[0], func(size int64) { _ = memory.reserve(-size) }, size)
	return mem.BufferSlice{mem.SliceBuffer(body)}, nil
}
