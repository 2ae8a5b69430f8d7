package model

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// MustMarshal encodes a message deterministically. It panics only on text that is not UTF-8, and the decoding of
// objects has checked all texts.
func MustMarshal(message proto.Message) []byte {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		panic(err)
	}
	return encoded
}

// ToAny returns an encoded message with its type.
func ToAny(message proto.Message) *anypb.Any {
	return &anypb.Any{TypeUrl: TypeURL(message), Value: MustMarshal(message)}
}

// TypeURL returns the type of a message.
func TypeURL(message proto.Message) string {
	return "type.googleapis.com/" + string(message.ProtoReflect().Descriptor().FullName())
}

// NetworkFilter returns a filter of connections.
func NetworkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: ToAny(config)}}
}

// HTTPFilter returns a filter of HTTP connection managers.
func HTTPFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: ToAny(config)}}
}

// AnyPath matches all requests.
func AnyPath() *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
}

// Visit calls visit with a message and all messages within it. complete reports the message itself, or the content of
// an Any.
func Visit(message proto.Message, visit func(message proto.Message, complete bool)) {
	_ = protorange.Range(message.ProtoReflect(), func(p protopath.Values) error { // visit returns no errors
		last := p.Index(-1)
		if message, ok := last.Value.Interface().(protoreflect.Message); ok {
			visit(message.Interface(), last.Step.Kind() == protopath.RootStep || last.Step.Kind() == protopath.AnyExpandStep)
		}
		return nil
	})
}
