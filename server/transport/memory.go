package transport

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
)

// requestMemory bounds the memory of large requests of all clients: of incomplete ones, and of resume versions that the
// engine retains. A connection reserves the largest size of a request before it reads more than a small one.
type requestMemory struct {
	capacity *semaphore.Weighted
	largest  int64 // bytes of one request
	small    int64 // payload of incomplete requests that a connection may have without a reservation
	patience time.Duration
	waiting  atomic.Int64 // connections
}

const (
	// smallRequests are larger than the first requests of an Envoy, which list all of its extensions.
	smallRequests = 64 << 10
	// memoryPatience is the time that a reservation may last while other connections wait.
	memoryPatience = 15 * time.Second
	// memoryWait is the time that a connection waits for a reservation. It is less than keepalives allow.
	memoryWait = 20 * time.Second
)

var (
	errNoMemory     = errors.New("no memory for a large request within limits.requestMemory")
	errHeldMemory   = errors.New("a large request took too long while others waited (limits.requestMemory)")
	errDecompressed = errors.New("a compressed request is too large: send it without compression")
)

func newRequestMemory(limits *Limits) *requestMemory {
	return &requestMemory{
		capacity: semaphore.NewWeighted(int64(limits.RequestMemory)), largest: int64(limits.RequestBytes),
		small: smallRequests, patience: memoryPatience,
	}
}

// acquire waits for the memory of a request.
func (m *requestMemory) acquire(ctx context.Context) error {
	if m.capacity.TryAcquire(m.largest) {
		return nil
	}
	m.waiting.Add(1)
	defer m.waiting.Add(-1)
	ctx, cancel := context.WithTimeoutCause(ctx, memoryWait, errNoMemory)
	defer cancel()
	if m.capacity.Acquire(ctx, m.largest) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// reservation is memory of large requests of one connection. If it lasts too long while others wait, the connection
// ends.
type reservation struct {
	connection *connection
	size       atomic.Int64 // zero after the release
	timer      *time.Timer
}

func (c *connection) newReservation(size int64) *reservation {
	created := &reservation{connection: c}
	created.size.Store(size)
	created.timer = time.AfterFunc(time.Hour, created.check)
	created.timer.Reset(c.limiter.memory.patience)
	return created
}

func (r *reservation) check() {
	connection := r.connection
	switch {
	case r.size.Load() == 0:
	case connection.limiter.memory.waiting.Load() > 0:
		connection.complain(refusedStalled, errHeldMemory)
		_ = connection.Close()
	default:
		r.timer.Reset(connection.limiter.memory.patience)
	}
}

// split moves size bytes to a reservation of its own.
func (r *reservation) split(size int64) *reservation {
	size = min(size, r.size.Load())
	r.size.Add(-size)
	return r.connection.newReservation(size)
}

// release frees the memory. It may be called again.
func (r *reservation) release() {
	r.timer.Stop()
	r.connection.limiter.memory.capacity.Release(r.size.Swap(0))
}

// receive counts payload of incomplete requests. It waits for a reservation when they are large.
func (c *connection) receive(payload int64) error {
	memory := c.limiter.memory
	c.mu.Lock()
	c.incoming += payload
	allowed := memory.small
	if c.reservation != nil {
		allowed += c.reservation.size.Load()
	}
	large := c.incoming > allowed
	c.mu.Unlock()
	if !large {
		return nil
	}
	if err := memory.acquire(c.ctx); err != nil {
		if errors.Is(err, errNoMemory) {
			c.complain(refusedRequestMemory, err)
		}
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
		memory.capacity.Release(memory.largest)
	case c.reservation == nil:
		c.reservation = c.newReservation(memory.largest)
	default:
		c.reservation.size.Add(memory.largest)
	}
	return nil
}

// received notes that a request of so many bytes is complete.
func (c *connection) received(wireLength int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.incoming = max(c.incoming-wireLength, 0)
}

// settle returns the memory of a complete request that the engine may retain, or nil for a small one, and frees the
// reservation if no other large request is incomplete. c may be nil.
func (c *connection) settle(retained int) *reservation {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reservation == nil {
		return nil
	}
	var part *reservation
	if retained > 0 {
		part = c.reservation.split(int64(retained))
	}
	if c.incoming <= c.limiter.memory.small {
		c.reservation.release()
		c.reservation = nil
	}
	return part
}

// releaseMemory frees the memory of a connection without streams.
func (c *connection) releaseMemory() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.incoming = 0
	if c.reservation != nil {
		c.reservation.release()
		c.reservation = nil
	}
}

// payloadCounter counts the payload of DATA frames among the bytes that a client sends after the preface (RFC 9113,
// section 4.1).
type payloadCounter struct {
	header       [frameHeader]byte
	headerLength int
	missing      int // bytes of the frame
}

const frameHeader, frameType = 9, 3

func (p *payloadCounter) count(data []byte) (payload int) {
	for len(data) > 0 {
		size := min(p.missing, len(data))
		if p.missing -= size; http2.FrameType(p.header[frameType]) == http2.FrameData {
			payload += size
		}
		if data = data[size:]; p.missing > 0 || len(data) == 0 {
			break
		}
		size = copy(p.header[p.headerLength:], data)
		data = data[size:]
		if p.headerLength += size; p.headerLength == frameHeader {
			p.headerLength = 0
			p.missing = int(p.header[0])<<16 | int(p.header[1])<<8 | int(p.header[2])
		}
	}
	return payload
}

// boundedGzip decompresses small requests. Honest clients compress none, and a large one would need a reservation.
type boundedGzip struct{ limiter *Limiter }

// largestDecompressed is the size of a compressed request, decompressed.
const largestDecompressed = 1 << 20

// Type implements grpc.Decompressor.
func (boundedGzip) Type() string { return gzip.Name }

// Do implements grpc.Decompressor. It delays a refusal, since gRPC ends the stream at once, and clients come back.
func (b boundedGzip) Do(compressed io.Reader) ([]byte, error) {
	reader, err := encoding.GetCompressor(gzip.Name).Decompress(compressed)
	if err != nil {
		return nil, err
	}
	limit := min(b.limiter.limits.RequestBytes, largestDecompressed)
	request, err := io.ReadAll(io.LimitReader(reader, int64(limit)+1))
	if err == nil && len(request) > limit {
		b.limiter.engine.Refused(refusedRequestBytes)
		b.limiter.delay(context.Background())
		return nil, errDecompressed
	}
	return request, err
}
