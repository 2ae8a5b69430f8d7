package transport

import (
	"cmp"
	"math"
	"time"
)

// Limits protect a gRPC server from its clients. A limit that is zero has its default, and one that is negative is none.
type Limits struct {
	Streams        int // open at once; 10,000
	StreamsPerPeer int // open at once from one IP address; 5,000
	// StreamsPerConnection are open at once on one connection, those of other services included; 100. Clients are told, and leave more
	// for another connection, or for later.
	StreamsPerConnection int
	// ConnectionsPerSecond are let in from one IP address, sustained; a tenth of a second's worth at once; 500. Others wait, and those who
	// would wait for longer than HandshakeTimeout are cut off.
	ConnectionsPerSecond float64
	// StreamsPerSecond are opened from one IP address, sustained, whether or not they are reset at once; a tenth of a second's worth at once;
	// 500. Others wait: their connections are read no further until it is their turn.
	StreamsPerSecond float64
	// RequestBytes is the size of one request; 16 MiB, and no more than 1 GiB.
	RequestBytes int
	// RequestMemory bounds, in bytes, what requests of more than 64 KiB may take of all clients together, until they were
	// answered; 64 MiB, and never less than RequestBytes. Others wait to be read.
	RequestMemory     int
	RequestsPerSecond float64 // of one stream, acknowledgements included, sustained; bursts of ten seconds' worth are let through; 10,000
	// RefusalDelay is how long a refused stream waits for its refusal; one second. istiod resets its backoff whenever a stream opens, so that
	// it would return twice a second after an immediate refusal.
	RefusalDelay time.Duration
	// HeaderBytes is the size of the headers of a stream, with 32 bytes more for each header; 64 KiB.
	HeaderBytes int
	// HandshakeTimeout is how long a new connection has for the handshakes of TLS and HTTP/2; 10 seconds.
	HandshakeTimeout time.Duration
	// FirstRequestTimeout is how long a stream may be without a request; one minute.
	FirstRequestTimeout time.Duration
	// IdleConnection is how long a connection may be without a stream; 5 minutes.
	IdleConnection time.Duration
	// StuckFor is how long a client may read next to nothing of a response that is being sent; 2 minutes.
	StuckFor time.Duration
	// ConnectionAge is how long a connection from another machine is used, give or take a tenth; 30 minutes. Its client is told to open
	// new streams on another connection (GOAWAY), and later its streams end with UNAVAILABLE, so that clients spread over replicas.
	ConnectionAge time.Duration
}

const (
	hugeRequest = 1 << 30
	hugeHeaders = 16 << 20 // which gRPC allows
)

func (l *Limits) setDefaults() {
	l.Streams = cmp.Or(l.Streams, 10_000)
	l.StreamsPerPeer = cmp.Or(l.StreamsPerPeer, 5000)
	if l.RequestBytes = cmp.Or(l.RequestBytes, 16<<20); l.RequestBytes < 0 || l.RequestBytes > hugeRequest {
		l.RequestBytes = hugeRequest
	}
	if l.RequestMemory = cmp.Or(l.RequestMemory, 64<<20); l.RequestMemory < 0 {
		l.RequestMemory = math.MaxInt
	}
	l.RequestMemory = max(l.RequestMemory, l.RequestBytes)
	l.RequestsPerSecond = cmp.Or(l.RequestsPerSecond, 10_000)
	l.RefusalDelay = cmp.Or(l.RefusalDelay, time.Second)
	l.StreamsPerConnection = cmp.Or(l.StreamsPerConnection, 100)
	l.StreamsPerSecond = cmp.Or(l.StreamsPerSecond, 500)
	l.ConnectionsPerSecond = cmp.Or(l.ConnectionsPerSecond, 500)
	if l.HeaderBytes = cmp.Or(l.HeaderBytes, 64<<10); l.HeaderBytes < 0 || l.HeaderBytes > hugeHeaders {
		l.HeaderBytes = hugeHeaders
	}
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, 10*time.Second)
	l.FirstRequestTimeout = cmp.Or(l.FirstRequestTimeout, time.Minute)
	l.IdleConnection = cmp.Or(l.IdleConnection, 5*time.Minute)
	l.StuckFor = cmp.Or(l.StuckFor, 2*time.Minute)
	l.ConnectionAge = cmp.Or(l.ConnectionAge, 30*time.Minute)
}

// orForever returns d, or the longest duration if d is negative.
func orForever(d time.Duration) time.Duration {
	if d < 0 {
		return math.MaxInt64
	}
	return d
}

// exceeded reports whether n is above a limit.
func exceeded(n, limit int) bool { return limit >= 0 && n > limit }

// The reasons of a refusal, as they label the metric of the engine.
const (
	refusedStreams       = "streams"
	refusedStreamsOfPeer = "streams_per_peer"
	refusedOthers        = "others_per_peer"
	refusedRequestBytes  = "request_bytes"
	refusedRequestMemory = "request_memory"
	refusedStalled       = "request_stalled"
	refusedFrames        = "request_frames"
	refusedRequestRate   = "request_rate"
	refusedPerConnection = "streams_per_connection"
	refusedStreamRate    = "stream_rate"
	refusedHeaders       = "header_bytes"
	refusedArrivals      = "connection_rate"
	refusedHandshake     = "handshake"
	refusedFirstRequest  = "first_request"
	refusedIdle          = "idle_connection"
	refusedStuck         = "stuck"
)
