package extend

import (
	"errors"
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// valueOf returns an empty message of the type of which the values of patches are.
func valueOf(to networking.EnvoyFilter_ApplyTo) proto.Message {
	switch to {
	case networking.EnvoyFilter_LISTENER:
		return &listenerv3.Listener{}
	case networking.EnvoyFilter_LISTENER_FILTER:
		return &listenerv3.ListenerFilter{}
	case networking.EnvoyFilter_FILTER_CHAIN:
		return &listenerv3.FilterChain{}
	case networking.EnvoyFilter_NETWORK_FILTER:
		return &listenerv3.Filter{}
	case networking.EnvoyFilter_HTTP_FILTER:
		return &hcmv3.HttpFilter{}
	case networking.EnvoyFilter_ROUTE_CONFIGURATION:
		return &routev3.RouteConfiguration{}
	case networking.EnvoyFilter_VIRTUAL_HOST:
		return &routev3.VirtualHost{}
	case networking.EnvoyFilter_HTTP_ROUTE:
		return &routev3.Route{}
	case networking.EnvoyFilter_CLUSTER:
		return &clusterv3.Cluster{}
	}
	return nil
}

// Decode returns the patches of an EnvoyFilter that can have an effect.
func Decode(key resource.Key, spec *networking.EnvoyFilter) (patches []*model.Patch, found model.Findings) {
	for i, c := range spec.GetConfigPatches() {
		p := &model.Patch{
			Place:   model.Place{Of: key, Field: fmt.Sprintf("spec.configPatches[%d]", i)},
			ApplyTo: c.GetApplyTo(), Operation: operation(c), Match: c.GetMatch(),
		}
		if why := decode(p, c.GetPatch().GetValue(), &found); why != "" {
			found.Note(p.Place, "%s", why)
			continue
		}
		patches = append(patches, p)
	}
	return patches, found
}

// operation returns the operation of a patch. What is inserted where there is no order is added.
func operation(c *networking.EnvoyFilter_EnvoyConfigObjectPatch) networking.EnvoyFilter_Patch_Operation {
	switch c.GetPatch().GetOperation() {
	case networking.EnvoyFilter_Patch_INSERT_BEFORE, networking.EnvoyFilter_Patch_INSERT_AFTER, networking.EnvoyFilter_Patch_INSERT_FIRST:
		switch c.GetApplyTo() {
		case networking.EnvoyFilter_HTTP_FILTER, networking.EnvoyFilter_NETWORK_FILTER, networking.EnvoyFilter_LISTENER_FILTER,
			networking.EnvoyFilter_HTTP_ROUTE:
		default:
			return networking.EnvoyFilter_Patch_ADD
		}
	}
	return c.GetPatch().GetOperation()
}

// decode sets the value of a patch, or returns why it has no effect.
func decode(p *model.Patch, value *structpb.Struct, found *model.Findings) (why string) {
	m := valueOf(p.ApplyTo)
	if m == nil {
		return p.ApplyTo.String() + " belongs to the bootstrap of the Envoy, or to what is not served"
	}
	if !hasEffect(p) {
		return fmt.Sprintf("%s has no effect on %s, as with istiod", p.Operation, p.ApplyTo)
	}
	if p.Operation == networking.EnvoyFilter_Patch_REMOVE {
		return ""
	}
	text, err := protojson.Marshal(value)
	if err != nil {
		return err.Error()
	}
	if err := protojson.Unmarshal(text, m); err != nil {
		proto.Reset(m)
		if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, m) != nil {
			return "the value is not read: " + reason(err)
		}
		found.Warn(p.Place, "a part of the value is ignored: %s", reason(err))
	}
	if err := typed(m); err != nil {
		return err.Error()
	}
	if p.Value = m; p.Operation != networking.EnvoyFilter_Patch_MERGE {
		return refused(m, nil)
	}
	if s := m.ProtoReflect(); p.ApplyTo == networking.EnvoyFilter_CLUSTER && m.(*clusterv3.Cluster).GetTransportSocket() != nil {
		s.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
			if f.Name() != "transport_socket" {
				found.Warn(p.Place, "%s is ignored beside transport_socket, as with istiod", f.Name())
			}
			return true
		})
	}
	return ""
}

// hasEffect says whether an operation does something.
func hasEffect(p *model.Patch) bool {
	switch p.Operation {
	case networking.EnvoyFilter_Patch_MERGE:
		return true
	case networking.EnvoyFilter_Patch_ADD, networking.EnvoyFilter_Patch_REMOVE:
		return p.ApplyTo != networking.EnvoyFilter_ROUTE_CONFIGURATION
	case networking.EnvoyFilter_Patch_REPLACE:
		switch p.ApplyTo {
		case networking.EnvoyFilter_VIRTUAL_HOST, networking.EnvoyFilter_HTTP_FILTER, networking.EnvoyFilter_NETWORK_FILTER,
			networking.EnvoyFilter_LISTENER_FILTER:
			return true
		}
		return false
	case networking.EnvoyFilter_Patch_INVALID:
		return false
	}
	return true
}

// reason returns an error of protojson without its blanks and positions, which differ from one call to the next.
func reason(err error) string {
	text := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
	if _, rest, ok := strings.Cut(text, "): "); ok {
		return rest
	}
	return text
}

// typedStruct is a message of a type that is named beside it.
type typedStruct interface {
	GetTypeUrl() string
	GetValue() *structpb.Struct
}

// typed gives each TypedStruct in a message the type that it names.
func typed(m proto.Message) (err error) {
	visit(m.ProtoReflect(), func(m protoreflect.Message) {
		config, ok := m.Interface().(*anypb.Any)
		if !ok || err != nil {
			return
		}
		var content proto.Message
		if content, err = config.UnmarshalNew(); err != nil {
			return
		}
		if t, ok := content.(typedStruct); ok {
			content, err = named(t)
		}
		if err == nil {
			err = typed(content)
		}
		if err == nil {
			config.TypeUrl, config.Value = model.TypeURL(content), model.MustMarshal(content)
		}
	})
	return err
}

// named returns the message that a TypedStruct stands for.
func named(t typedStruct) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByURL(t.GetTypeUrl())
	if err != nil {
		return nil, fmt.Errorf("there is no type %s", t.GetTypeUrl())
	}
	text, err := protojson.Marshal(t.GetValue())
	if err != nil {
		return nil, err
	}
	m := kind.New().Interface()
	if err := protojson.Unmarshal(text, m); err != nil {
		return nil, errors.New("the value of a TypedStruct is not read: " + reason(err))
	}
	return m, nil
}
