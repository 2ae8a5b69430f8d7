package translate

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// anyHead returns an encoded Any without its value, with room for it.
func anyHead(typeURL string, size int) []byte {
	b := make([]byte, 0, size+len(typeURL)+16)
	b = appendString(b, 1, typeURL)
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType),
		uint64(size)) //nolint:gosec // not negative
}

// appendMessage appends a field that is a message. write appends the fields of the message.
func appendMessage(b []byte, field protowire.Number, write func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	start := len(b)
	b = write(b)
	var size [binary.MaxVarintLen64]byte
	return slices.Insert(b, start, binary.AppendUvarint(size[:0], uint64(len(b)-start))...)
}

func appendString(b []byte, field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func appendUint32(b []byte, field protowire.Number, value uint32) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(value))
}

// EntryOf returns the entry of a message.
func EntryOf(message proto.Message) *xds.Entry {
	options := proto.MarshalOptions{Deterministic: true}
	encoded := anyHead(model.TypeURL(message), options.Size(message))
	options.UseCachedSize = true
	encoded, err := options.MarshalAppend(encoded, message)
	if err != nil {
		panic(err) // as in mustMarshal
	}
	return &xds.Entry{
		Name: xds.NameOf(message), Version: xds.VersionOf(encoded), Any: encoded,
		Child: xds.ChildOf(message),
	}
}

// EntryOfBytes returns the entry of an encoded message.
func EntryOfBytes(name, typeURL string, body []byte) *xds.Entry {
	b := append(anyHead(typeURL, len(body)), body...)
	return &xds.Entry{Name: name, Version: xds.VersionOf(b), Any: b}
}
