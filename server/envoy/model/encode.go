package model

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
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
func ToAny(m proto.Message) *anypb.Any { return &anypb.Any{TypeUrl: TypeURL(m), Value: MustMarshal(m)} }

// TypeURL returns the type of a message.
func TypeURL(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

// NetworkFilter returns a filter of connections.
func NetworkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: ToAny(config)}}
}

// HTTPFilter returns a filter of HTTP connection managers.
func HTTPFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: ToAny(config)}}
}

// Visit calls f with a message and all that are in it. whole says that a message is the first one, or that it stands in an Any.
func Visit(m proto.Message, f func(m proto.Message, whole bool)) {
	_ = protorange.Range(m.ProtoReflect(), func(p protopath.Values) error { // f returns no errors
		last := p.Index(-1)
		if m, is := last.Value.Interface().(protoreflect.Message); is {
			f(m.Interface(), last.Step.Kind() == protopath.RootStep || last.Step.Kind() == protopath.AnyExpandStep)
		}
		return nil
	})
}
