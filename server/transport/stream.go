package transport

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"tributary/internal/address"
	"tributary/internal/words"
)

// Interceptors returns the options by which a gRPC server counts streams and calls under the limits of l. They are among ServerOptions.
func (l *Limiter) Interceptors() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainStreamInterceptor(l.interceptStream), grpc.ChainUnaryInterceptor(l.interceptCall)}
}

func (l *Limiter) interceptStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ofEngine := srv == l.engine
	host, addr := clientOf(ss.Context())
	leave, err := l.enter(host, true, ofEngine)
	if err != nil {
		if l.logged.Allow() {
			l.log.Warn("stream refused", "peer", addr, "err", words.Plain(err.Error()))
		}
		l.delay(ss.Context())
		return err
	}
	defer leave()
	conn := connOf(ss.Context())
	if !ofEngine {
		return handler(srv, &otherStream{ss, l, host, conn != nil})
	}
	ctx, end := context.WithCancelCause(ss.Context())
	defer end(nil)
	if conn != nil {
		defer context.AfterFunc(conn.aged, func() { end(errAged) })()
	}
	s := &limitedStream{ServerStream: ss, ctx: ctx, limiter: l, conn: conn, rate: limiterOf(l.limits.RequestsPerSecond)}
	s.first = newStallTimer(l.limits.FirstRequestTimeout, conn.bytesReceived, func() {
		end(l.refuse(refusedFirstRequest, "no request for %s, which is the limit", l.limits.FirstRequestTimeout))
	})
	s.first.start()
	defer s.first.stop()
	if conn != nil {
		s.write = newStallTimer(l.limits.StuckFor, conn.bytesAccepted, func() { conn.end(refusedStuck, errStuck) })
		defer s.write.stop()
	}
	if err = handler(srv, s); status.Code(err) == codes.ResourceExhausted {
		l.delay(ss.Context())
	}
	return err
}

// clientOf returns the IP address of the client whose stream has ctx, and how its address is shown.
func clientOf(ctx context.Context) (host, addr string) {
	if p, ok := peer.FromContext(ctx); ok {
		return address.Host(p.Addr), address.Peer(p.Addr)
	}
	return "", ""
}

// limiterOf allows so much a second, and bursts of ten times that. It is nil if there is no limit.
func limiterOf(perSecond float64) *rate.Limiter {
	if perSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(int(10*perSecond), 1))
}

// limitedStream is a stream of the engine.
type limitedStream struct {
	grpc.ServerStream

	ctx     context.Context // ends when the stream is to end, with the reason for its cause
	limiter *Limiter
	conn    *limitedConn  // or nil
	rate    *rate.Limiter // of requests, or nil
	first   *stallTimer   // until the first request; one that is on its way, and large, has more time
	write   *stallTimer   // while a response is being sent; nil if the client may stall
}

// Context implements grpc.ServerStream.
func (s *limitedStream) Context() context.Context { return s.ctx }

// request is one that may be kept longer than until the next one is received.
type request interface {
	Due() bool                // whether a response to its client may be due
	OnRelease(release func()) // has release called when nothing of it is retained any more
}

// RecvMsg implements grpc.ServerStream.
func (s *limitedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		if status.Code(err) == codes.ResourceExhausted { // gRPC has told the client
			s.limiter.refused(refusedRequestBytes)
		}
		return err
	}
	s.first.stop()
	if s.rate != nil && !s.rate.Allow() {
		return s.limiter.refuse(refusedRequestRate, "too many requests: the limit is %g a second", s.limiter.limits.RequestsPerSecond)
	}
	of, _ := s.ctx.Value(callKey{}).(*call)
	if r, ok := m.(request); ok && of != nil {
		if room := s.conn.claim(*of, r.Due); room != nil {
			r.OnRelease(room.release)
		}
	}
	return nil
}

// SendMsg implements grpc.ServerStream.
func (s *limitedStream) SendMsg(m any) error {
	s.write.start()
	defer s.write.pause()
	return s.ServerStream.SendMsg(m)
}

func (l *Limiter) interceptCall(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	host, _ := clientOf(ctx)
	leave, err := l.enter(host, false, false)
	if err != nil {
		return nil, err
	}
	defer leave()
	if connOf(ctx) == nil {
		if err := l.spaceOut(ctx, host); err != nil {
			return nil, err
		}
	}
	return handler(ctx, req)
}

// othersPerPeer is how many streams of other services, such as watches of health, an address may have open.
const othersPerPeer = 100

// spaceOut waits until an address may ask again, by limits.streamsPerSecond.
func (l *Limiter) spaceOut(ctx context.Context, host string) error {
	if l.opens.perSecond >= 0 && !l.opens.of(host, time.Now()).wait(ctx.Done(), nil) {
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// otherStream is a stream of another service, whose requests count like streams that are opened.
type otherStream struct {
	grpc.ServerStream

	limiter *Limiter
	host    string
	counted bool // the next request, since its stream was
}

// RecvMsg implements grpc.ServerStream.
func (o *otherStream) RecvMsg(m any) error {
	if err := o.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if o.counted {
		o.counted = false
		return nil
	}
	return o.limiter.spaceOut(o.Context(), o.host)
}
