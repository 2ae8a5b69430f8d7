package model

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// MustMarshal encodes a message, equal ones equally. It fails only on text that is not UTF-8, and all texts come out of decoded messages,
// where that was looked at.
func MustMarshal(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// ToAny returns an encoded message with its type.
func ToAny(m proto.Message) *anypb.Any {
	return &anypb.Any{TypeUrl: TypeURL(m), Value: MustMarshal(m)}
}

// TypeURL returns the type of a message.
func TypeURL(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}
