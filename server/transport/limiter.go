package transport

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// Engine is the xDS server that a Limiter protects. Its streams have more limits than those of other services.
type Engine interface {
	Refused(reason string) // counts a refusal
}

// Limiter bounds the cost of the clients of a gRPC server. It is safe for concurrent use.
type Limiter struct {
	engine   Engine
	limits   Limits
	log      *slog.Logger
	logLines *rate.Limiter // of log lines that clients cause
	memory   *requestMemory
	ctx      context.Context // ends with Close
	close    func()
	delayed  atomic.Int64 // refused streams that wait for RefusalDelay

	mu           sync.Mutex
	streams      int                         // of all services, and calls
	perPeer      map[string]int              // streams by IP address
	otherStreams map[string]int              // streams of services other than xDS, by IP address
	rates        map[rateLimit]*rate.Limiter // of streams, calls, and requests to services other than xDS, by IP address
}

// NewLimiter returns a Limiter for gRPC servers that are created with its ServerOptions.
func NewLimiter(engine Engine, limits Limits, log *slog.Logger) *Limiter {
	limits.setDefaults()
	limiter := &Limiter{
		engine:       engine,
		limits:       limits,
		log:          log,
		logLines:     rate.NewLimiter(10, 100),
		memory:       newRequestMemory(&limits),
		perPeer:      make(map[string]int),
		otherStreams: make(map[string]int),
		rates:        make(map[rateLimit]*rate.Limiter),
	}
	limiter.ctx, limiter.close = context.WithCancel(context.Background())
	return limiter
}

// Close ends all waits. Call it before the gRPC server is stopped.
func (l *Limiter) Close() { l.close() }

const (
	// keepaliveTime is the silence of a client before gRPC pings it. The client has keepaliveTimeout to answer.
	keepaliveTime, keepaliveTimeout = 30 * time.Second, 10 * time.Second
	// ageGrace is the time from GOAWAY to the end of an old connection.
	ageGrace = 10 * time.Second
)

// ServerOptions returns the options of a gRPC server with credentials creds. They come after those of the engine and
// before other interceptors.
func (l *Limiter) ServerOptions(creds credentials.TransportCredentials) []grpc.ServerOption {
	streams := uint32(math.MaxUint32)
	if l.limits.StreamsPerConnection >= 0 {
		streams = uint32(min(l.limits.StreamsPerConnection, math.MaxUint32)) //nolint:gosec // it is bounded
	}
	return append(l.Interceptors(),
		grpc.Creds(limitedCredentials{creds, l}), grpc.StatsHandler(streamStatistics{int64(l.limits.StreamsPerConnection)}),
		grpc.RPCDecompressor(boundedGzip{l}), //nolint:staticcheck // others are for all servers and clients
		grpc.MaxRecvMsgSize(l.limits.RequestBytes),
		grpc.MaxHeaderListSize(uint32(l.limits.HeaderBytes)), //nolint:gosec // it is bounded
		grpc.MaxConcurrentStreams(streams), grpc.ConnectionTimeout(orUnlimited(l.limits.HandshakeTimeout)),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: orUnlimited(l.limits.IdleConnection),
			MaxConnectionAge:  orUnlimited(l.limits.ConnectionAge), MaxConnectionAgeGrace: ageGrace,
			Time: keepaliveTime, Timeout: keepaliveTimeout,
		}),
	)
}

// limitedCredentials wrap the connections of a Limiter.
type limitedCredentials struct {
	credentials.TransportCredentials

	limiter *Limiter
}

// ServerHandshake implements credentials.TransportCredentials.
func (c limitedCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	inner, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err == nil {
		var conn *connection
		if conn, err = newConnection(inner, c.limiter); err == nil {
			return conn, info, nil
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) { // gRPC closes the connection
		c.limiter.engine.Refused(refusedHandshake)
	}
	return nil, nil, err // not wrapped: gRPC compares it
}

// Clone implements credentials.TransportCredentials.
func (c limitedCredentials) Clone() credentials.TransportCredentials {
	return limitedCredentials{c.TransportCredentials.Clone(), c.limiter}
}

// otherStreamsPerPeer is the number of open streams of services other than xDS, such as watches of health, that an
// address may have.
const otherStreamsPerPeer = 100

// enter counts a call or stream and returns a function that ends the count, or an error if a limit is reached.
func (l *Limiter) enter(host string, otherStream bool) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	otherServices := 0
	if otherStream {
		otherServices = 1
	}
	switch {
	case l.otherStreams[host]+otherServices > otherStreamsPerPeer:
		return nil, l.refuse(refusedOtherStreams,
			"too many streams of other services than xDS from %s: the limit is %d", host, otherStreamsPerPeer)
	case exceeded(l.streams+1, l.limits.Streams):
		return nil, l.refuse(refusedStreams, "too many streams: the limit is %d", l.limits.Streams)
	case exceeded(l.perPeer[host]+1, l.limits.StreamsPerPeer):
		return nil, l.refuse(refusedStreamsOfPeer, "too many streams from %s: the limit is %d", host,
			l.limits.StreamsPerPeer)
	}
	l.streams++
	l.perPeer[host]++
	l.otherStreams[host] += otherServices
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.streams--
		l.perPeer[host]--
		if l.perPeer[host] == 0 {
			delete(l.perPeer, host)
		}
		l.otherStreams[host] -= otherServices
		if l.otherStreams[host] == 0 {
			delete(l.otherStreams, host)
		}
	}, nil
}

// refuse counts a refusal and returns a gRPC status that makes clients back off.
func (l *Limiter) refuse(reason, format string, args ...any) error {
	l.engine.Refused(reason)
	return status.Errorf(codes.ResourceExhausted, format, args...)
}

// maxDelayed bounds the memory of refused streams that wait for RefusalDelay.
const maxDelayed = 1000

// delay waits for RefusalDelay before a refusal is sent.
func (l *Limiter) delay(ctx context.Context) {
	defer l.delayed.Add(-1)
	if l.delayed.Add(1) > maxDelayed {
		return
	}
	select {
	case <-ctx.Done():
	case <-l.ctx.Done():
	case <-time.After(l.limits.RefusalDelay):
	}
}
