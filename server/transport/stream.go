package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
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
	s.first = newFirstRequest(l, conn, end)
	defer s.first.stop()
	s.write = newWriteTimeout(conn, l.limits.StuckFor)
	defer s.write.stop()
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
	first   *firstRequest
	write   *writeTimeout
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
	s.write.sending()
	defer s.write.sent()
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

// firstRequest ends a stream of which no request came in time. One that is on its way, and large, has more.
type firstRequest struct {
	limiter *Limiter
	conn    *limitedConn // of the stream, or nil
	end     func(error)

	mu    sync.Mutex
	timer *time.Timer // nil if there is no limit, or the request has come
	sent  int64       // bytes of messages on the connection, when the timer began
}

// leastSent is how many bytes a client sends at the least, in the time that it has for its first request, if that is not to be all the
// time that it has.
const leastSent = 4 << 10

func newFirstRequest(l *Limiter, c *limitedConn, end func(error)) *firstRequest {
	f := &firstRequest{limiter: l, conn: c, end: end}
	if l.limits.FirstRequestTimeout > 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.timer, f.sent = time.AfterFunc(l.limits.FirstRequestTimeout, f.look), c.sentSoFar()
	}
	return f
}

func (f *firstRequest) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}

// look ends the stream, or gives it more time.
func (f *firstRequest) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch sent := f.conn.sentSoFar(); {
	case f.timer == nil:
	case sent-f.sent >= leastSent:
		f.sent = sent
		f.timer.Reset(f.limiter.limits.FirstRequestTimeout)
	default:
		f.end(f.limiter.refuse(refusedFirstRequest, "no request for %s, which is the limit", f.limiter.limits.FirstRequestTimeout))
	}
}

func (c *limitedConn) sentSoFar() int64 {
	if c == nil {
		return 0
	}
	return c.sent.Load()
}

// writeTimeout closes the connection of a client that does not take what it is being sent. gRPC tells its stream nothing of it: it waits in
// SendMsg for as long as the connection lasts, with what is to be sent. nil is of a stream that may
// wait.
type writeTimeout struct {
	conn  *limitedConn
	limit time.Duration

	mu       sync.Mutex
	since    time.Time // of the message that is being sent, or of the last progress; zero while none is
	accepted int64     // bytes on the connection at that time
	timer    *time.Timer
	armed    bool
}

// leastAccepted is how many bytes a client takes at the least within the limit. Pings and their answers are fewer.
const leastAccepted = 4 << 10

var errStuck = errors.New("it does not read what it is sent, for longer than limits.stuckFor")

func newWriteTimeout(c *limitedConn, limit time.Duration) *writeTimeout {
	if c == nil || limit < 0 {
		return nil
	}
	return &writeTimeout{conn: c, limit: limit}
}

// sending notes that a message is being sent.
func (w *writeTimeout) sending() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.accepted = time.Now(), w.conn.accepted.Load()
	if !w.armed {
		w.arm(w.limit)
	}
}

// sent notes that gRPC has taken it. The timer is left to find that out by itself: messages are many, and limits long.
func (w *writeTimeout) sent() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Time{}
}

func (w *writeTimeout) stop() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
}

// arm has judge called after d; w.mu is held.
func (w *writeTimeout) arm(d time.Duration) {
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.judge)
		return
	}
	w.timer.Reset(d)
}

func (w *writeTimeout) judge() {
	if w.over() {
		w.conn.end(refusedStuck, errStuck)
	}
}

// over says whether the client had its time. If it has some left, judge is called when that is over.
func (w *writeTimeout) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	if w.since.IsZero() {
		return false
	}
	if accepted := w.conn.accepted.Load(); accepted-w.accepted >= leastAccepted {
		w.since, w.accepted = time.Now(), accepted
	}
	left := w.limit - time.Since(w.since)
	if left > 0 {
		w.arm(left)
	}
	return left <= 0
}

// A connection ends in three steps. gRPC sends GOAWAY, upon which the client opens new streams elsewhere. At ConnectionAge, give or take a
// tenth, the streams of xDS end. What is left after ageGrace ends with the connection. gRPC's own grace would end connections of this
// machine, too; these get the GOAWAY alone.

// goAwayAfter is for gRPC, which adds or takes away a tenth, and is done with that when the first streams may end.
func (l *Limits) goAwayAfter() time.Duration {
	if l.ConnectionAge < 0 {
		return orForever(l.ConnectionAge)
	}
	return l.ConnectionAge / 11 * 9
}

const ageGrace = 10 * time.Second

var errAged = status.Error(codes.Unavailable, "the connection was open for limits.connectionAge: connect again")

// startAging returns the timer that ends a connection; nil if the connection may stay.
func (c *limitedConn) startAging() *time.Timer {
	age := c.limiter.limits.ConnectionAge
	if age < 0 || isLocal(c.addr) {
		return nil
	}
	return time.AfterFunc(time.Duration(float64(age)*(0.9+0.2*rand.Float64())), c.old) //nolint:gosec // it spreads clients
}

func isLocal(addr net.Addr) bool {
	ap, err := netip.ParseAddrPort(addr.String())
	return addr.Network() == "unix" || err == nil && ap.Addr().Unmap().IsLoopback()
}

// old ends the streams of the engine, and then the connection.
func (c *limitedConn) old() {
	c.retire()
	select {
	case <-c.ctx.Done():
	case <-time.After(ageGrace):
		_ = c.Close()
	}
}
