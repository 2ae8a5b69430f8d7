package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// stream is one client. It is owned by one goroutine.
type stream struct {
	cfg   *Config
	conn  *grpc.ClientConn
	node  *corev3.Node // set until the first request was sent
	meter *meter

	types   map[string]*received // by type URL
	marked  bool                 // the server marks the end of a response in several parts
	started time.Time
	filled  time.Time // when the last part of a first answer came
	settled bool      // the meter knows whether the client was ever answered in full
}

type received struct {
	complete bool   // the first answer has come to its end
	moved    bool   // there was another version since
	version  string // of the last response
	place    int    // of that version in the history that the meter knows
}

// A server with this header on its delta streams gives a version only to the last part of a large response (package
// server/xds). Of other servers, responses of the same version are taken for parts of one.
const chunkHeader, versionAtEnd = "xds-delta-chunks", "version-at-end"

// run keeps the stream until it ends, which it says why.
func (s *stream) run(ctx context.Context) error {
	method := discoveryv3.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName
	if s.cfg.Delta {
		method = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName
	}
	s.started = time.Now()
	st, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	for _, typeURL := range s.cfg.Types {
		if err := s.send(st, &response{typeURL: typeURL}); err != nil {
			return err
		}
	}
	header, err := st.Header()
	if err != nil {
		return err
	}
	s.marked = slices.Contains(header.Get(chunkHeader), versionAtEnd)
	r := &response{delta: s.cfg.Delta}
	for {
		if err := st.RecvMsg(r); err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("the server ended it")
			}
			return err
		}
		s.take(r, time.Now())
		if err := s.send(st, r); err != nil {
			return err
		}
	}
}

// send asks for the type of r, or acknowledges r if it has a nonce.
func (s *stream) send(st grpc.ClientStream, r *response) error {
	var req proto.Message
	if s.cfg.Delta {
		req = &discoveryv3.DeltaDiscoveryRequest{Node: s.node, TypeUrl: r.typeURL, ResponseNonce: r.nonce}
	} else {
		req = &discoveryv3.DiscoveryRequest{Node: s.node, TypeUrl: r.typeURL, ResponseNonce: r.nonce, VersionInfo: r.version}
	}
	s.node = nil
	err := st.SendMsg(req)
	if errors.Is(err, io.EOF) { // the receiving side gets the reason
		for err = nil; err == nil; {
			err = st.RecvMsg(&response{delta: s.cfg.Delta})
		}
	}
	if err != nil {
		return fmt.Errorf("request %s: %w", r.typeURL, err)
	}
	return nil
}

func (s *stream) take(r *response, now time.Time) {
	t := s.types[r.typeURL]
	if t == nil {
		t = &received{}
		s.types[r.typeURL] = t
	}
	goesOn := s.marked && r.version == ""
	repeated := !s.marked && !t.moved && r.version != "" && r.version == t.version
	if t.complete && !repeated {
		news := !goesOn && r.version != t.version
		t.place = s.meter.later(r, t.place, news, now)
		t.moved = t.moved || news
	} else {
		t.place = s.meter.initial(r, now)
		t.complete, s.filled = !goesOn, now
	}
	if !goesOn {
		t.version = r.version
	}
	if !s.settled && s.answered() {
		s.settled = true
		s.meter.settle(true)
	}
}

func (s *stream) answered() bool {
	for _, typeURL := range s.cfg.Types {
		if t := s.types[typeURL]; t == nil || !t.complete {
			return false
		}
	}
	return true
}

// end tells the meter how the stream ended: by err, or as it should if that is nil.
func (s *stream) end(err error) {
	if s.answered() {
		s.meter.filled(s.started, s.filled)
	}
	if err == nil {
		return
	}
	s.meter.fail(err)
	if !s.settled {
		s.meter.settle(false)
	}
}

// response is the envelope of a DiscoveryResponse or a DeltaDiscoveryResponse. Resources are counted and skipped.
type response struct {
	delta bool // which of the two it is; set before it is received

	version, typeURL, nonce string
	resources, removed      int
	size                    int
}

// The field numbers of envoy.service.discovery.v3.DiscoveryResponse and DeltaDiscoveryResponse. The two agree in those that
// are read here, but for fieldRemoved, which is another field in the first.
const (
	fieldVersion  protowire.Number = 1
	fieldResource protowire.Number = 2
	fieldTypeURL  protowire.Number = 4
	fieldNonce    protowire.Number = 5
	fieldRemoved  protowire.Number = 6
)

// codec reads responses without decoding their resources, and leaves all else to the standard codec.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*response); ok {
		return r.read(data)
	}
	return c.CodecV2.Unmarshal(data, v)
}

func (r *response) read(data mem.BufferSlice) error {
	*r = response{delta: r.delta, size: data.Len()}
	reader := data.Reader()
	defer func() { _ = reader.Close() }() // it only gives memory back
	for reader.Remaining() > 0 {
		tag, err := binary.ReadUvarint(reader)
		if err != nil {
			return err
		}
		number, wire := protowire.DecodeTag(tag)
		if wire == protowire.VarintType {
			if _, err := binary.ReadUvarint(reader); err != nil {
				return err
			}
			continue
		}
		if wire != protowire.BytesType {
			return fmt.Errorf("field %d of a response has wire type %d", number, wire)
		}
		size, err := binary.ReadUvarint(reader)
		if err != nil {
			return err
		}
		if size > uint64(reader.Remaining()) {
			return io.ErrUnexpectedEOF
		}
		if err := r.field(number, reader, int(size)); err != nil {
			return err
		}
	}
	return nil
}

func (r *response) field(number protowire.Number, reader *mem.Reader, size int) error {
	var into *string
	switch {
	case number == fieldVersion:
		into = &r.version
	case number == fieldTypeURL:
		into = &r.typeURL
	case number == fieldNonce:
		into = &r.nonce
	case number == fieldResource:
		r.resources++
	case number == fieldRemoved && r.delta:
		r.removed++
	}
	if into == nil {
		_, err := reader.Discard(size)
		return err
	}
	text := make([]byte, size)
	_, err := io.ReadFull(reader, text)
	*into = string(text)
	return err
}
