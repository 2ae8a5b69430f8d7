package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of discovery.v3.DiscoveryResponse and DeltaDiscoveryResponse. The two agree in all that is read here.
const (
	fieldVersion  protowire.Number = 1
	fieldResource protowire.Number = 2
	fieldTypeURL  protowire.Number = 4
	fieldNonce    protowire.Number = 5
)

// Response is a received discovery response. Only its envelope is read; resources are counted and skipped.
type Response struct {
	Version   string
	TypeURL   string
	Nonce     string
	Resources int
	Size      int

	data mem.BufferSlice
}

// Encoded implements Frame. A response is only ever received.
func (r *Response) Encoded() mem.BufferSlice { return r.data }

// Decode implements Frame. It keeps the data, so that the time of arrival is taken before any of it is looked at.
func (r *Response) Decode(data mem.BufferSlice) error {
	data.Ref()
	*r = Response{data: data, Size: data.Len()}
	return nil
}

// Free gives the data back to the transport.
func (r *Response) Free() {
	r.data.Free()
	r.data = nil
}

// Scan reads the envelope.
func (r *Response) Scan() error {
	reader := r.data.Reader()
	defer func() { _ = reader.Close() }()
	for reader.Remaining() > 0 {
		tag, err := binary.ReadUvarint(reader)
		if err != nil {
			return err
		}
		number, kind := protowire.DecodeTag(tag)
		if kind == protowire.VarintType {
			if _, err := binary.ReadUvarint(reader); err != nil {
				return err
			}
			continue
		}
		if kind != protowire.BytesType {
			return fmt.Errorf("response field %d has wire type %d", number, kind)
		}
		size, err := binary.ReadUvarint(reader)
		if err != nil {
			return err
		}
		if size > uint64(reader.Remaining()) {
			return io.ErrUnexpectedEOF
		}
		var into *string
		switch number {
		case fieldVersion:
			into = &r.Version
		case fieldTypeURL:
			into = &r.TypeURL
		case fieldNonce:
			into = &r.Nonce
		case fieldResource:
			r.Resources++
		}
		if into == nil {
			if _, err := reader.Discard(int(size)); err != nil {
				return err
			}
			continue
		}
		text := make([]byte, size)
		if _, err := io.ReadFull(reader, text); err != nil {
			return err
		}
		*into = string(text)
	}
	return nil
}

// Contains says whether marker occurs anywhere in the response. It is how a client knows that the change it waits for is in,
// whatever a server makes of versions, at the price of one vectorised pass.
func (r *Response) Contains(marker []byte) bool {
	// A value that spans two buffers is found in seam: the end of the earlier and the beginning of the next.
	keep := len(marker) - 1
	seam := make([]byte, 0, 4*len(marker))
	for _, buffer := range r.data {
		b := buffer.ReadOnlyData()
		if bytes.Contains(b, marker) {
			return true
		}
		seam = append(seam, b[:min(keep, len(b))]...)
		if bytes.Contains(seam, marker) {
			return true
		}
		if len(b) >= keep {
			seam = append(seam[:0], b[len(b)-keep:]...)
		} else if len(seam) > keep {
			seam = append(seam[:0], seam[len(seam)-keep:]...)
		}
	}
	return false
}

// Fields of DeltaDiscoveryResponse and Resource.
const (
	fieldRemoved      protowire.Number = 6
	fieldResourceName protowire.Number = 3
)

// Names returns the names of the resources of a delta response, and of those that it removes.
func (r *Response) Names() (names, removed []string, err error) {
	b := r.data.Materialize()
	err = eachField(b, func(number protowire.Number, value []byte) error {
		switch number {
		case fieldRemoved:
			removed = append(removed, string(value))
		case fieldResource:
			return eachField(value, func(number protowire.Number, value []byte) error {
				if number == fieldResourceName {
					names = append(names, string(value))
				}
				return nil
			})
		}
		return nil
	})
	return names, removed, err
}

// eachField calls f with the fields of a message that are bytes.
func eachField(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b[n:])
			if err := f(number, value); err != nil {
				return err
			}
		}
		b = b[n+size:]
	}
	return nil
}
