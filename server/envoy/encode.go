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
	return &anypb.Any{TypeUrl: "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()), Value: mustMarshal(m)}
}

// entryOf returns the entry of a message.
func entryOf(m proto.Message) *xds.Entry {
	a := toAny(m)
	e := entryOfBytes(xds.NameOf(m), a.GetTypeUrl(), a.GetValue())
	e.Child = xds.ChildOf(m)
	return e
}

// entryOfBytes returns the entry of a message that is encoded already.
func entryOfBytes(name, typeURL string, body []byte) *xds.Entry {
	b := make([]byte, 0, len(body)+len(typeURL)+16)
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), typeURL)
	b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), body)
	return &xds.Entry{Name: name, Version: xds.VersionOf(b), Any: b}
}
