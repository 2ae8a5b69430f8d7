package transport

import (
	"encoding/binary"
	"errors"
)

// frames parses the HTTP/2 frames of a client just far enough to find where each gRPC message begins and ends, and its size (RFC 9113,
// section 4; gRPC over HTTP2, Length-Prefixed-Message). gRPC reports malformed frames.
type frames struct {
	// began is called when the size of a message is known, and ended when the message is complete or its stream ends.
	began, ended func(*incoming)
	// mayOpen is called when the client opens a stream. If it returns false, read stops there until waits is set to false.
	mayOpen func() bool
	waits   bool

	preface int // bytes of the client's connection preface that have not arrived

	header [frameHeader]byte
	have   int // of header
	left   int // bytes of the frame's payload that have not arrived
	padded bool
	body   int // the same without padding; negative until the padding is known
	id     uint32

	opened     int    // streams, whether or not they are reset at once
	maxHeaders int    // encoded bytes of the headers of a stream
	headers    int    // encoded bytes so far, of the stream that is being opened
	newest     uint32 // stream
	begun      bool   // the first frame, which ends the handshake, has arrived
	bodies     int64  // bytes of messages that have arrived

	current  *incoming            // of the frame, if it carries data
	next     incoming             // for a frame that begins with one
	messages map[uint32]*incoming // incomplete messages, by stream

	err error // why the connection is not read any further, or nil
}

// incoming is a message that is being received on a stream.
type incoming struct {
	prefix [messagePrefix]byte
	have   int // of prefix
	size   int // from the prefix
	left   int // bytes that have not arrived
	frames int // how many it began or continued in without being complete
	room   *reservation
}

const (
	clientPreface = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	frameHeader   = 9
	messagePrefix = 5 // whether it is compressed, and its size

	frameData, frameHeaders, frameReset, frameContinuation = 0, 1, 3, 9
	flagEndStream, flagPadded                              = 1, 8

	// maxUnfinished bounds the incomplete messages of a connection.
	maxUnfinished = 10_000
	// The frames of a message must have leastFrame bytes on average, after the first freeFrames. gRPC keeps each frame, with a hundred bytes
	// of its own, until the message is complete. Honest senders make small frames only when a window is nearly full.
	leastFrame, freeFrames = 256, 32
)

var (
	errUnfinished  = errors.New("too many streams in the middle of a message")
	errSmallFrames = errors.New("a message in many small frames")
	errHeaders     = errors.New("the headers of a stream are more than limits.headerBytes")
)

func newFrames(began, ended func(*incoming), mayOpen func() bool, l *Limits) *frames {
	return &frames{
		began: began, ended: ended, mayOpen: mayOpen, preface: clientPreface, messages: make(map[uint32]*incoming),
		maxHeaders: l.HeaderBytes,
	}
}

// reason returns the label of err in the metric.
func (f *frames) reason() string {
	if errors.Is(f.err, errHeaders) {
		return refusedHeaders
	}
	return refusedFrames
}

func (m *incoming) compressed() bool { return m.prefix[0] != 0 }

func (m *incoming) tooSmallFrames() bool {
	return m.frames > freeFrames && (m.frames-freeFrames)*leastFrame > m.size-m.left
}

// read parses the next bytes of the client, up to the header of a stream that has to wait. It returns how many it parsed.
func (f *frames) read(b []byte) int {
	all, n := len(b), min(f.preface, len(b))
	f.preface -= n
	for b = b[n:]; len(b) > 0 && !f.waits; {
		if f.have < frameHeader {
			n := copy(f.header[f.have:], b)
			b = b[n:]
			if f.have += n; f.have == frameHeader {
				f.begin()
			}
		} else {
			n := min(f.left, len(b))
			f.payload(b[:n])
			b = b[n:]
			f.left -= n
		}
		if f.have == frameHeader && f.left == 0 {
			f.end()
		}
	}
	return all - len(b)
}

// rest returns how many bytes of the current frame have not arrived.
func (f *frames) rest() int {
	if f.have < frameHeader {
		return 0
	}
	return f.left
}

func (f *frames) begin() {
	h := &f.header
	f.left = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	f.id = binary.BigEndian.Uint32(h[5:]) &^ (1 << 31)
	f.current = nil
	switch h[3] {
	case frameHeaders:
		f.open()
	case frameContinuation:
		f.head()
	case frameReset:
		f.drop(f.id)
	case frameData:
		if f.current = f.messages[f.id]; f.current == nil {
			f.current = &f.next
		}
		f.body = f.left
		if f.padded = h[4]&flagPadded != 0; f.padded {
			f.body = -1
		}
	}
}

// open counts a stream that the client opens.
func (f *frames) open() {
	if f.id > f.newest {
		f.newest = f.id
		f.opened++
		f.waits = f.begun && !f.mayOpen() // a handshake has its own time
	}
	f.headers = 0
	f.head()
}

// head counts the encoded bytes of headers. gRPC checks their decoded size.
func (f *frames) head() {
	if f.headers += f.left; f.headers > f.maxHeaders {
		f.err = errHeaders
	}
}

func (f *frames) payload(b []byte) {
	if f.current == nil {
		return
	}
	if f.body < 0 {
		f.body = max(f.left-1-int(b[0]), 0)
		b = b[1:]
	}
	b = b[:min(f.body, len(b))]
	f.body -= len(b)
	f.data(b)
}

// data parses bytes of consecutive messages.
func (f *frames) data(b []byte) {
	f.bodies += int64(len(b))
	for m := f.current; len(b) > 0; {
		if m.have < messagePrefix {
			n := copy(m.prefix[m.have:], b)
			b = b[n:]
			if m.have += n; m.have < messagePrefix {
				return
			}
			m.size = int(binary.BigEndian.Uint32(m.prefix[1:]))
			m.left = m.size
			f.began(m)
		} else {
			n := min(m.left, len(b))
			b = b[n:]
			m.left -= n
			m.room.progress(n)
		}
		if m.left == 0 {
			f.ended(m)
			*m = incoming{}
		}
	}
}

func (f *frames) end() {
	f.have, f.begun = 0, true
	if f.current == nil {
		return
	}
	switch {
	case f.current.have == 0:
		delete(f.messages, f.id)
	case f.current == &f.next:
		m := f.next
		f.messages[f.id], f.next = &m, incoming{}
		if len(f.messages) > maxUnfinished {
			f.err = errUnfinished
		}
	default:
		if f.current.frames++; f.current.tooSmallFrames() {
			f.err = errSmallFrames
		}
	}
	if f.header[4]&flagEndStream != 0 {
		f.drop(f.id)
	}
	f.current = nil
}

// drop ends the incomplete message of a stream that has ended.
func (f *frames) drop(id uint32) {
	if m := f.messages[id]; m != nil {
		delete(f.messages, id)
		f.ended(m)
	}
}
