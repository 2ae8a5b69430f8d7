package load

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

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

// codec reads responses without decoding what they carry, and leaves all else to the standard codec.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*response); ok {
		return r.read(data)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// read takes the envelope from data.
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

// field takes one field of size bytes.
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
