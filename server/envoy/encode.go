package envoy

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/xds"
)

// mustMarshal encodes a message, equal ones equally. It fails only on text that is not UTF-8, and all texts come out of decoded messages,
// where that was looked at.
func mustMarshal(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func toAny(m proto.Message) *anypb.Any {
	return &anypb.Any{TypeUrl: typeURL(m), Value: mustMarshal(m)}
}

func typeURL(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

// anyHead returns an encoded Any up to its value of a size, for which there is room.
func anyHead(typeURL string, size int) []byte {
	b := make([]byte, 0, size+len(typeURL)+16)
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), typeURL)
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(size)) //nolint:gosec // not negative
}

// entryOf returns the entry of a message.
func entryOf(m proto.Message) *xds.Entry {
	options := proto.MarshalOptions{Deterministic: true}
	b := anyHead(typeURL(m), options.Size(m))
	options.UseCachedSize = true
	b, err := options.MarshalAppend(b, m)
	if err != nil {
		panic(err) // as in mustMarshal
	}
	return &xds.Entry{Name: xds.NameOf(m), Version: xds.VersionOf(b), Any: b, Child: xds.ChildOf(m)}
}

// entryOfBytes returns the entry of a message that is encoded already.
func entryOfBytes(name, typeURL string, body []byte) *xds.Entry {
	b := append(anyHead(typeURL, len(body)), body...)
	return &xds.Entry{Name: name, Version: xds.VersionOf(b), Any: b}
}
