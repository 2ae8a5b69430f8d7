package transport

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"tributary/internal/address"
	"tributary/internal/words"
)

// Interceptors returns the options of a gRPC server that counts streams and calls under the limits of l. ServerOptions
// contains them.
func (l *Limiter) Interceptors() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainStreamInterceptor(l.interceptStream), grpc.ChainUnaryInterceptor(l.interceptCall),
	}
}

func (l *Limiter) interceptStream(
	service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	otherService := service != l.engine
	host, client := clientOf(stream.Context())
	leave, err := l.enter(host, otherService)
	if err != nil {
		if l.logLines.Allow() {
			l.log.Warn("stream refused", "peer", client, "err", words.Plain(err.Error()))
		}
		l.delay(stream.Context())
		return err
	}
	defer leave()
	l.awaitTurn(host, otherService)
	if err := stream.Context().Err(); err != nil { // the client reset the stream
		return status.FromContextError(err).Err()
	}
	err = handler(service, &limitedStream{
		ServerStream: stream, limiter: l, conn: connectionOf(stream.Context()), host: host, otherService: otherService,
	})
	if status.Code(err) == codes.ResourceExhausted {
		l.delay(stream.Context())
	}
	return err
}

// clientOf returns the IP address of a stream's client, and its address for messages.
func clientOf(ctx context.Context) (host, shown string) {
	if p, ok := peer.FromContext(ctx); ok {
		return address.Host(p.Addr), address.Peer(p.Addr)
	}
	return "", ""
}

// limitedStream frees the memory of requests. The requests to services other than xDS count like streams.
type limitedStream struct {
	grpc.ServerStream

	limiter      *Limiter
	conn         *connection // or nil
	host         string
	otherService bool
	counted      bool // the first request, with its stream
}

// retainable is one that the engine may retain longer than until the next one.
type retainable interface {
	RetainedSize() int
	OnRelease(release func()) // release is called when the engine retains no part of the request
}

// RecvMsg implements grpc.ServerStream.
func (s *limitedStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		if status.Code(err) == codes.ResourceExhausted { // gRPC answers the client
			s.limiter.engine.Refused(refusedRequestBytes)
		}
		return err
	}
	if r, ok := message.(retainable); !ok {
		s.conn.finishRequest(0)
	} else if memory := s.conn.finishRequest(r.RetainedSize()); memory != nil {
		r.OnRelease(memory.release)
	}
	if s.otherService && s.counted {
		s.limiter.awaitTurn(s.host, true)
	}
	s.counted = true
	return s.Context().Err()
}

func (l *Limiter) interceptCall(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	connectionOf(ctx).finishRequest(0)
	host, _ := clientOf(ctx)
	leave, err := l.enter(host, false)
	if err != nil {
		return nil, err
	}
	defer leave()
	l.awaitTurn(host, true)
	return handler(ctx, request)
}
