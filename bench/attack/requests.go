package attack

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/bench/wire"
)

var (
	bidirectional = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	asBytes       = grpc.ForceCodecV2(wire.Codec{})
)

func (r *run) client(ctx context.Context, n int) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+r.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return r.dial(ctx, n) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
}

// stream opens a stream on a connection of its own, as gRPC does.
func (r *run) stream(ctx context.Context, n int, method string, options ...grpc.CallOption) (grpc.ClientStream, func(), error) {
	conn, err := r.client(ctx, n)
	if err != nil {
		return nil, nil, err
	}
	hangUp := func() { _ = conn.Close() }
	s, err := conn.NewStream(ctx, bidirectional, method, append(options, asBytes)...)
	if err != nil {
		hangUp()
		return nil, nil, err
	}
	return s, hangUp, nil
}

// drain reads responses until the stream ends, and returns the reason.
func drain(s grpc.ClientStream) error {
	for {
		var got wire.Bytes
		if err := s.RecvMsg(&got); err != nil {
			return err
		}
	}
}

// sendLarge sends a request of so many bytes, most of them an unknown field, again and again.
func sendLarge(size int) func(ctx context.Context, r *run, n int) error {
	request := sync.OnceValue(func() wire.Bytes { // one for all
		b := protowire.AppendVarint(protowire.AppendTag(nil, 15, protowire.BytesType), uint64(size))
		return append(b, make([]byte, size)...)
	})
	return func(ctx context.Context, r *run, n int) error {
		s, hangUp, err := r.stream(ctx, n, wire.MethodDelta)
		if err != nil {
			return err
		}
		defer hangUp()
		first, large := wire.Bytes(wire.Subscription{Delta: true, Node: r.Node, TypeURL: r.TypeURL, Names: []string{"not-there"}}.First()),
			request()
		for message := &first; ; message = &large {
			if err := s.SendMsg(message); err != nil {
				return drain(s)
			}
			r.sent.Add(1)
		}
	}
}

// subscribeToMuch asks for 50,000 names by state of the world, and stays.
func subscribeToMuch(ctx context.Context, r *run, n int) error {
	names := make([]string, int(50_000*min(1, 10*r.Size)))
	for i := range names {
		names[i] = fmt.Sprintf("not-there/%d-%d", n, i)
	}
	sub := wire.Subscription{Node: r.Node, TypeURL: r.TypeURL, Names: names}
	s, hangUp, err := r.stream(ctx, n, wire.MethodSotW)
	if err != nil {
		return err
	}
	defer hangUp()
	first := wire.Bytes(sub.First())
	if err := s.SendMsg(&first); err != nil {
		return drain(s)
	}
	r.sent.Add(1)
	return drain(s) // and sends no ACK
}

// rejectAll asks for everything and rejects it, 200 times a second.
func rejectAll(ctx context.Context, r *run, n int) error {
	s, hangUp, err := r.stream(ctx, n, wire.MethodDelta)
	if err != nil {
		return err
	}
	defer hangUp()
	first := wire.Bytes(wire.Subscription{Delta: true, Node: r.Node, TypeURL: r.TypeURL}.First())
	if err := s.SendMsg(&first); err != nil {
		return drain(s)
	}
	nonces := make(chan string, 1)
	ended := make(chan error, 1)
	go func() { ended <- tell(s, nonces) }()
	nonce := ""
	err = each(ctx, 200, func() error {
		select {
		case err := <-ended:
			return err
		case nonce = <-nonces:
		default:
		}
		nack := wire.Bytes(rejection(r.TypeURL, nonce, noReason))
		r.sent.Add(1)
		return s.SendMsg(&nack)
	})
	hangUp()
	return err
}

// tell says which nonce came last.
func tell(s grpc.ClientStream, nonces chan string) error {
	for {
		var got wire.Response
		if err := s.RecvMsg(&got); err != nil {
			return err
		}
		if err := got.Scan(); err != nil {
			return err
		}
		select {
		case <-nonces: // an older one
		default:
		}
		nonces <- got.Nonce
		got.Free()
	}
}

// noReason has 4 KiB.
var noReason = fmt.Sprintf("no %04096d", 0)

// rejection is a delta request with an error.
func rejection(typeURL, nonce, reason string) []byte {
	var detail []byte
	detail = protowire.AppendVarint(protowire.AppendTag(detail, 1, protowire.VarintType), 3)
	detail = protowire.AppendString(protowire.AppendTag(detail, 2, protowire.BytesType), reason)
	b := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), typeURL)
	b = protowire.AppendString(protowire.AppendTag(b, 6, protowire.BytesType), nonce)
	return protowire.AppendBytes(protowire.AppendTag(b, 7, protowire.BytesType), detail)
}
