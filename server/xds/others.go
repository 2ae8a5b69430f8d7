package xds

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
)

// Interceptors returns the options by which a gRPC server counts streams and calls of services other than s under the limits of s. They are
// among ServerOptions.
func (s *Server) Interceptors() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainStreamInterceptor(s.interceptStream), grpc.ChainUnaryInterceptor(s.interceptCall)}
}

func (s *Server) interceptStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if srv == s { // serve counts it
		return handler(srv, ss)
	}
	st := &stream{server: s, grpc: ss, host: HostOf(ss.Context())}
	if p, ok := peer.FromContext(ss.Context()); ok {
		st.peer = peerOf(p.Addr)
	}
	leave, err := s.enterOther(st.host, true)
	if err != nil {
		s.stall(st, err)
		return err
	}
	defer leave()
	return handler(srv, &otherStream{ss, s, st.host, ss.Context().Value(connKey{}) != nil})
}

func (s *Server) interceptCall(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	host := HostOf(ctx)
	leave, err := s.enterOther(host, false)
	if err != nil {
		return nil, err
	}
	defer leave()
	if ctx.Value(connKey{}) == nil {
		if err := s.spaceOut(ctx, host); err != nil {
			return nil, err
		}
	}
	return handler(ctx, req)
}

// othersPerPeer is how many streams of other services, such as watches of health, an address may have open.
const othersPerPeer = 100

// enterOther counts a call of another service, or a stream. The function that it returns ends that.
func (s *Server) enterOther(host string, stream bool) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	streams := 0
	if stream {
		streams = 1
	}
	if s.others[host]+streams > othersPerPeer {
		return nil, s.refuse(refusedOthers, codes.ResourceExhausted, "too many streams of other services than xDS from %s: the limit is %d", host,
			othersPerPeer)
	}
	if err := s.enter(host); err != nil {
		return nil, err
	}
	s.others[host] += streams
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.exit(host)
		if s.others[host] -= streams; s.others[host] == 0 {
			delete(s.others, host)
		}
	}, nil
}

// spaceOut waits until an address may ask again, by limits.streamsPerSecond.
func (s *Server) spaceOut(ctx context.Context, host string) error {
	if s.opens.perSecond >= 0 && !s.opens.of(host, time.Now()).wait(ctx.Done(), nil) {
		return ended(ctx)
	}
	return nil
}

// otherStream is a stream of another service, whose requests count like streams that are opened.
type otherStream struct {
	grpc.ServerStream

	server  *Server
	host    string
	counted bool // the next request, since its stream was
}

func (o *otherStream) RecvMsg(m any) error {
	if err := o.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if o.counted {
		o.counted = false
		return nil
	}
	return o.server.spaceOut(o.Context(), o.host)
}
