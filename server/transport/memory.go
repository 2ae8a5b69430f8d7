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

// requestMemory bounds the memory of the large requests of all clients: of incomplete requests, and of the resume
// versions that the engine retains. A connection reserves the largest size of a request before it reads more than a
// small one.
type requestMemory struct {
	capacity         *semaphore.Weighted
	largest          int64 // bytes of one request
	small            int64 // payload of incomplete requests that a connection may have without a reservation
	reservationLimit time.Duration
	waiting          atomic.Int64 // connections
}

const (
	// smallRequests are larger than the first requests of an Envoy, which list all of its extensions.
	smallRequests = 64 << 10
	// reservationLimit is the time that a reservation may last while other connections wait.
	reservationLimit = 15 * time.Second
	// reservationWait is the time that a connection waits for a reservation. It is less than keepalives allow.
	reservationWait = 20 * time.Second
)

var (
	errNoMemory     = errors.New("no memory for a large request within limits.requestMemory")
	errHeldMemory   = errors.New("a large request took too long while others waited (limits.requestMemory)")
	errDecompressed = errors.New("a compressed request is too large: send it without compression")
)

func newRequestMemory(limits *Limits) *requestMemory {
	return &requestMemory{
		capacity:         semaphore.NewWeighted(int64(limits.RequestMemory)),
		largest:          int64(limits.RequestBytes),
		small:            smallRequests,
		reservationLimit: reservationLimit,
	}
}

// acquire waits for the memory of a request.
func (m *requestMemory) acquire(ctx context.Context) error {
	if m.capacity.TryAcquire(m.largest) {
		return nil
	}
	m.waiting.Add(1)
	defer m.waiting.Add(-1)
	ctx, cancel := context.WithTimeoutCause(ctx, reservationWait, errNoMemory)
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
	created.timer = time.AfterFunc(time.Hour, created.endIfOverdue)
	created.timer.Reset(c.limiter.memory.reservationLimit)
	return created
}

func (r *reservation) endIfOverdue() {
	connection := r.connection
	switch {
	case r.size.Load() == 0:
	case connection.limiter.memory.waiting.Load() > 0:
		connection.reportExceeded(refusedStalled, errHeldMemory)
		_ = connection.Close()
	default:
		r.timer.Reset(connection.limiter.memory.reservationLimit)
	}
}

// splitOff moves size bytes to a reservation of its own.
func (r *reservation) splitOff(size int64) *reservation {
	size = min(size, r.size.Load())
	r.size.Add(-size)
	return r.connection.newReservation(size)
}

// release frees the memory. It may be called again.
func (r *reservation) release() {
	r.timer.Stop()
	r.connection.limiter.memory.capacity.Release(r.size.Swap(0))
}

// reserve counts payload of incomplete requests. It waits for a reservation if they are large.
func (c *connection) reserve(payload int64) error {
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
			c.reportExceeded(refusedRequestMemory, err)
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

// noteComplete subtracts a complete request from the incomplete ones.
func (c *connection) noteComplete(wireLength int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.incoming = max(c.incoming-wireLength, 0)
}

// finishRequest frees the reservation after a complete request, unless another large request is incomplete. It returns
// the part that the engine may retain, or nil. c may be nil.
func (c *connection) finishRequest(retained int) *reservation {
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
		part = c.reservation.splitOff(int64(retained))
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
	frameRest    int // bytes of the frame that are still to come
}

const frameHeader, frameType = 9, 3

func (p *payloadCounter) count(data []byte) (payload int) {
	for len(data) > 0 {
		size := min(p.frameRest, len(data))
		p.frameRest -= size
		if http2.FrameType(p.header[frameType]) == http2.FrameData {
			payload += size
		}
		data = data[size:]
		if p.frameRest > 0 || len(data) == 0 {
			break
		}
		size = copy(p.header[p.headerLength:], data)
		data = data[size:]
		p.headerLength += size
		if p.headerLength == frameHeader {
			p.headerLength = 0
			p.frameRest = int(p.header[0])<<16 | int(p.header[1])<<8 | int(p.header[2])
		}
	}
	return payload
}

// boundedGzip decompresses small requests. Clients in use compress none, and a large one would need a reservation.
type boundedGzip struct{ limiter *Limiter }

// largestDecompressed limits the size of a request after its decompression.
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
