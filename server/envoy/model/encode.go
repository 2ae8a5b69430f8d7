package model

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
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
func Visit(m proto.Message, f func(m proto.Message, whole bool)) { visit(m.ProtoReflect(), true, f) }

func visit(m protoreflect.Message, whole bool, f func(proto.Message, bool)) {
	f(m.Interface(), whole)
	if a, is := m.Interface().(*anypb.Any); is {
		if content, err := a.UnmarshalNew(); err == nil {
			Visit(content, f)
		}
		return
	}
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.IsMap() && d.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				visit(v.Message(), false, f)
				return true
			})
		case d.IsMap() || d.Message() == nil:
		case d.IsList():
			for i := range v.List().Len() {
				visit(v.List().Get(i).Message(), false, f)
			}
		default:
			visit(v.Message(), false, f)
		}
		return true
	})
}
