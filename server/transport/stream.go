package transport

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
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
	service any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	ofEngine := service == l.engine
	host, client := clientOf(ss.Context())
	leave, err := l.enter(host, !ofEngine)
	if err != nil {
		if l.logLines.Allow() {
			l.log.Warn("stream refused", "peer", client, "err", words.Plain(err.Error()))
		}
		l.delay(ss.Context())
		return err
	}
	defer leave()
	l.awaitTurn(host)
	if err := ss.Context().Err(); err != nil { // the client reset the stream
		return status.FromContextError(err).Err()
	}
	conn := l.connectionOf(ss.Context())
	if ofEngine {
		err = l.serveEngine(service, ss, conn, handler)
	} else {
		err = handler(service, &otherStream{ServerStream: ss, limiter: l, conn: conn, host: host, counted: true})
	}
	if errors.Is(context.Cause(ss.Context()), errAged) {
		return errAged
	}
	if status.Code(err) == codes.ResourceExhausted {
		l.delay(ss.Context())
	}
	return err
}

// serveEngine serves a stream of the engine.
func (l *Limiter) serveEngine(service any, ss grpc.ServerStream, conn *connection, handler grpc.StreamHandler) error {
	ctx, end := context.WithCancelCause(ss.Context())
	defer end(nil)
	s := &limitedStream{ServerStream: ss, ctx: ctx, end: end, limiter: l, conn: conn}
	if perSecond := l.limits.RequestsPerSecond; perSecond > 0 {
		s.requests = rate.NewLimiter(rate.Limit(perSecond), max(int(10*perSecond), 1))
	}
	s.watchdog = time.AfterFunc(time.Hour, s.check)
	defer s.watchdog.Stop()
	s.watchdog.Reset(orForever(l.limits.FirstRequestTimeout))
	return handler(service, s)
}

// clientOf returns the IP address of a stream's client, and its address for messages.
func clientOf(ctx context.Context) (host, shown string) {
	if p, ok := peer.FromContext(ctx); ok {
		return address.Host(p.Addr), address.Peer(p.Addr)
	}
	return "", ""
}

// limitedStream is a stream of the engine.
type limitedStream struct {
	grpc.ServerStream

	ctx      context.Context // ends when the stream has to end, with the reason as its cause
	end      context.CancelCauseFunc
	limiter  *Limiter
	conn     *connection   // or nil
	requests *rate.Limiter // or nil
	watchdog *time.Timer   // calls check
	active   atomic.Bool   // a request arrived
	sends    atomic.Int64  // twice the number of sent responses; odd while one is being sent

	// owned by check
	checkedSends, checkedBytes int64
}

// Context implements grpc.ServerStream.
func (s *limitedStream) Context() context.Context { return s.ctx }

// leastProgress is the number of written bytes that are progress. Pings and their answers have fewer.
const leastProgress = 4 << 10

// check ends a stream without a request, and the connection of a client that does not read. gRPC waits in SendMsg as
// long as the connection lasts.
func (s *limitedStream) check() {
	if !s.active.Load() {
		limit := s.limiter.limits.FirstRequestTimeout
		s.end(s.limiter.refuse(refusedFirstRequest, "no request for %s, which is the limit", limit))
		return
	}
	if s.conn == nil || s.limiter.limits.StuckFor < 0 || s.ctx.Err() != nil {
		return
	}
	sends, written := s.sends.Load(), s.conn.written.Load()
	if sends%2 == 1 && sends == s.checkedSends && written-s.checkedBytes < leastProgress {
		s.conn.terminate(refusedStuck, errStuck)
		return
	}
	s.checkedSends, s.checkedBytes = sends, written
	s.watchdog.Reset(s.limiter.limits.StuckFor)
}

// request is one that the engine may retain longer than until the next one.
type request interface {
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
	if !s.active.Swap(true) {
		s.watchdog.Reset(orForever(s.limiter.limits.StuckFor))
	}
	if s.requests != nil && !s.requests.Allow() {
		return s.limiter.refuse(refusedRequestRate, "too many requests: the limit is %g a second",
			s.limiter.limits.RequestsPerSecond)
	}
	if r, ok := message.(request); ok {
		if memory := s.conn.settle(r.RetainedSize()); memory != nil {
			r.OnRelease(memory.release)
		}
	}
	return nil
}

// SendMsg implements grpc.ServerStream.
func (s *limitedStream) SendMsg(message any) error {
	s.sends.Add(1)
	defer s.sends.Add(1)
	return s.ServerStream.SendMsg(message)
}

func (l *Limiter) interceptCall(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	l.connectionOf(ctx).settle(0)
	host, _ := clientOf(ctx)
	leave, err := l.enter(host, false)
	if err != nil {
		return nil, err
	}
	defer leave()
	l.awaitTurn(host)
	return handler(ctx, req)
}

// otherStreamsPerPeer is the number of open streams of services other than xDS, such as watches of health, that an
// address may have.
const otherStreamsPerPeer = 100

// otherStream is a stream of a service other than xDS. Its requests count like streams.
type otherStream struct {
	grpc.ServerStream

	limiter *Limiter
	conn    *connection // or nil
	host    string
	counted bool // the next request, with its stream
}

// RecvMsg implements grpc.ServerStream.
func (o *otherStream) RecvMsg(message any) error {
	if err := o.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	o.conn.settle(0)
	if !o.counted {
		o.limiter.awaitTurn(o.host)
	}
	o.counted = false
	return o.Context().Err()
}
