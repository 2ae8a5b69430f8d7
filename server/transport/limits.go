package transport

import (
	"cmp"
	"math"
	"time"
)

// Limits protect a gRPC server from its clients. Zero is the default of a limit, and a negative number is no limit.
type Limits struct {
	Streams        int // open at once; 10,000
	StreamsPerPeer int // open at once from one IP address; 5,000
	// StreamsPerConnection are open at once on one connection, with those of other services; 100. Clients learn it, and
	// open further ones on another connection, or later.
	StreamsPerConnection int
	// StreamsPerSecond begin from one IP address, sustained, and as many at once; 500. Others wait, even after
	// a reset. gRPC reads a connection no further while StreamsPerConnection of its streams wait or run.
	StreamsPerSecond float64
	// RequestBytes is the size of one request; 16 MiB, and no more than 1 GiB.
	RequestBytes int
	// RequestMemory bounds the memory of large requests of all clients, in bytes, until their versions are compared;
	// 64 MiB, and never less than RequestBytes. Others wait to be read.
	RequestMemory int
	// RefusalDelay is the time that a refused stream waits for its refusal; one second. istiod resets its backoff with
	// each stream, so that it would return twice a second after an immediate refusal.
	RefusalDelay time.Duration
	// HeaderBytes is the size of the headers of a stream, with 32 bytes more for each header; 64 KiB.
	HeaderBytes int
	// HandshakeTimeout is the time of a new connection for the handshakes of TLS and HTTP/2; 10 seconds.
	HandshakeTimeout time.Duration
	// IdleConnection is the time that a connection may be without a stream; 5 minutes.
	IdleConnection time.Duration
	// ConnectionAge is the time until gRPC sends GOAWAY, give or take a tenth; 30 minutes. The connection ends ten seconds
	// later, and its client connects again, so that clients spread over replicas.
	ConnectionAge time.Duration
}

const (
	hugeRequest = 1 << 30
	hugeHeaders = 16 << 20 // the default of gRPC
)

func (l *Limits) setDefaults() {
	l.Streams = cmp.Or(l.Streams, 10_000)
	l.StreamsPerPeer = cmp.Or(l.StreamsPerPeer, 5000)
	l.RequestBytes = cmp.Or(l.RequestBytes, 16<<20)
	if l.RequestBytes < 0 || l.RequestBytes > hugeRequest {
		l.RequestBytes = hugeRequest
	}
	l.RequestMemory = cmp.Or(l.RequestMemory, 64<<20)
	if l.RequestMemory < 0 {
		l.RequestMemory = math.MaxInt
	}
	l.RequestMemory = max(l.RequestMemory, l.RequestBytes)
	l.RefusalDelay = cmp.Or(l.RefusalDelay, time.Second)
	l.StreamsPerConnection = cmp.Or(l.StreamsPerConnection, 100)
	l.StreamsPerSecond = cmp.Or(l.StreamsPerSecond, 500)
	l.HeaderBytes = cmp.Or(l.HeaderBytes, 64<<10)
	if l.HeaderBytes < 0 || l.HeaderBytes > hugeHeaders {
		l.HeaderBytes = hugeHeaders
	}
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, 10*time.Second)
	l.IdleConnection = cmp.Or(l.IdleConnection, 5*time.Minute)
	l.ConnectionAge = cmp.Or(l.ConnectionAge, 30*time.Minute)
}

// orUnlimited returns a duration, or the longest one if it is negative.
func orUnlimited(duration time.Duration) time.Duration {
	if duration < 0 {
		return math.MaxInt64
	}
	return duration
}

// exceeded reports whether n is above a limit.
func exceeded(n, limit int) bool { return limit >= 0 && n > limit }

// The reasons of a refusal, which label the metric of the engine.
const (
	refusedStreams       = "streams"
	refusedStreamsOfPeer = "streams_per_peer"
	refusedOtherStreams  = "others_per_peer"
	refusedRequestBytes  = "request_bytes"
	refusedRequestMemory = "request_memory"
	refusedStalled       = "request_stalled"
	refusedPerConnection = "streams_per_connection"
	refusedHandshake     = "handshake"
)
