package debug

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync/atomic"

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

// CSDS is the client status discovery service about those who are connected here. The status of clients says how they stand with each type.
//
// An answer about thousands of clients has megabytes. It is encoded client by client, one answer at a time, in turns with others who have
// much done, and what the answers take that are on their way is bounded: anybody may ask, and need not read.
type CSDS struct {
	answer func(context.Context, *statusv3.ClientStatusRequest) (any, error)

	// of OfClients
	clients Clients
	turns   *turns.Turns  // taken by who makes an answer
	kept    *atomic.Int64 // bytes of answers that are in memory
}

// OfClients returns the service that tells of those who are connected here.
func OfClients(clients Clients) *CSDS {
	c := &CSDS{clients: clients, turns: turns.New(1), kept: new(atomic.Int64)}
	c.answer = func(ctx context.Context, r *statusv3.ClientStatusRequest) (any, error) { return c.encoded(ctx, r) }
	return c
}

// OfSelf returns the service that tells how this program stands with those whose client it is. They are few.
func OfSelf(upstreams func() []*statusv3.ClientConfig) *CSDS {
	return &CSDS{answer: func(_ context.Context, r *statusv3.ClientStatusRequest) (any, error) {
		match, err := nodes(r.GetNodeMatchers())
		if err != nil {
			return nil, err
		}
		all := slices.DeleteFunc(upstreams(), func(c *statusv3.ClientConfig) bool { return !match(c.GetNode()) })
		return &statusv3.ClientStatusResponse{Config: all}, nil
	}}
}

// Register has s serve it. For OfClients the codec of s must pass a mem.BufferSlice through as it is, as that of package xds does.
func (c *CSDS) Register(s grpc.ServiceRegistrar) {
	desc := statusv3.ClientStatusDiscoveryService_ServiceDesc
	desc.HandlerType = nil // the answers are encoded, and not those of the generated interface
	desc.Methods = slices.Clone(desc.Methods)
	desc.Methods[0].Handler = c.fetch
	desc.Streams = slices.Clone(desc.Streams)
	desc.Streams[0].Handler = c.stream
	s.RegisterService(&desc, nil)
}

//nolint:revive // gRPC's order
func (c *CSDS) fetch(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	r := &statusv3.ClientStatusRequest{}
	if err := decode(r); err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, _ any) (any, error) { return c.answer(ctx, r) }
	if intercept == nil {
		return handle(ctx, r)
	}
	return intercept(ctx, r, &grpc.UnaryServerInfo{
		Server:     c,
		FullMethod: statusv3.ClientStatusDiscoveryService_FetchClientStatus_FullMethodName,
	}, handle)
}

// stream gives each request its answer.
func (c *CSDS) stream(_ any, stream grpc.ServerStream) error {
	for {
		r := &statusv3.ClientStatusRequest{}
		err := stream.RecvMsg(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer, err := c.answer(stream.Context(), r)
		if err != nil {
			return err
		}
		if err := stream.SendMsg(answer); err != nil {
			return err
		}
	}
}

// configField is ClientStatusResponse.config.
const configField protowire.Number = 1

// encoded returns the ClientStatusResponse to a request as gRPC is to send it.
func (c *CSDS) encoded(ctx context.Context, r *statusv3.ClientStatusRequest) (mem.BufferSlice, error) {
	match, err := nodes(r.GetNodeMatchers())
	if err != nil {
		return nil, err
	}
	a := answer{kept: c.kept}
	late := c.turns.Do(ctx, xds.HostOf(ctx), func() {
		err = forEach(ctx, c.clients, func(client *xds.ClientStatus) error {
			if !match(client.Node) {
				return nil
			}
			return a.add(config(client))
		})
	})
	if late != nil {
		return nil, gone(ctx)
	}
	if err != nil {
		return nil, err
	}
	a.end()
	return a.done, nil
}

// The parts of an answer, in bytes, but for what is larger by itself: each has twice as much as the one before.
const leastPart, mostPart = 4 << 10, 256 << 10

// answer is one that is being made, in parts that need not be moved when it grows. Each counts until it is collected, which is after it was
// sent: nothing else tells when that is.
type answer struct {
	kept *atomic.Int64
	done mem.BufferSlice
	size int    // of these
	part []byte // to which is added
}

func (a *answer) add(c *statusv3.ClientConfig) (err error) {
	size := proto.Size(c)
	need := protowire.SizeTag(configField) + protowire.SizeBytes(size)
	if cap(a.part)-len(a.part) < need {
		if err := a.begin(max(need, min(max(2*cap(a.part), leastPart), mostPart))); err != nil {
			return err
		}
	}
	a.part = protowire.AppendVarint(protowire.AppendTag(a.part, configField, protowire.BytesType), uint64(size))
	a.part, err = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(a.part, c)
	return err
}

// begin begins a part.
func (a *answer) begin(size int) error {
	a.end()
	if a.size+size > maxAnswer {
		return status.Errorf(codes.ResourceExhausted, "the answer has more than %d bytes: ask for fewer nodes", maxAnswer)
	}
	if a.kept.Add(int64(size)) > maxKept {
		a.kept.Add(-int64(size))
		return status.Error(codes.ResourceExhausted, "too many large answers are on their way: try again, or ask for fewer nodes")
	}
	a.part = make([]byte, 0, size)
	kept := a.kept // what the cleanup refers to is not collected
	runtime.AddCleanup(&a.part[:1][0], func(size int64) { kept.Add(-size) }, int64(size))
	return nil
}

func (a *answer) end() {
	if len(a.part) > 0 {
		a.done = append(a.done, mem.SliceBuffer(a.part))
		a.size += len(a.part)
	}
}
