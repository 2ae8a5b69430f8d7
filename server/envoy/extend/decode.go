package extend

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// valueTypes are the messages that the values of patches are decoded into.
var valueTypes = map[networking.EnvoyFilter_ApplyTo]proto.Message{
	networking.EnvoyFilter_LISTENER:            &listenerv3.Listener{},
	networking.EnvoyFilter_LISTENER_FILTER:     &listenerv3.ListenerFilter{},
	networking.EnvoyFilter_FILTER_CHAIN:        &listenerv3.FilterChain{},
	networking.EnvoyFilter_NETWORK_FILTER:      &listenerv3.Filter{},
	networking.EnvoyFilter_HTTP_FILTER:         &hcmv3.HttpFilter{},
	networking.EnvoyFilter_ROUTE_CONFIGURATION: &routev3.RouteConfiguration{},
	networking.EnvoyFilter_VIRTUAL_HOST:        &routev3.VirtualHost{},
	networking.EnvoyFilter_HTTP_ROUTE:          &routev3.Route{},
	networking.EnvoyFilter_CLUSTER:             &clusterv3.Cluster{},
}

// Decode decodes the patches of an EnvoyFilter. It returns nil for a nil spec.
func Decode(key resource.Key, spec *networking.EnvoyFilter) *Decoded {
	if spec == nil {
		return nil
	}
	decoded := &Decoded{EnvoyFilter: spec}
	for i, config := range spec.GetConfigPatches() {
		patch := &model.Patch{
			Place:   model.PlaceIn(key, "spec.configPatches[%d]", i),
			ApplyTo: config.GetApplyTo(), Operation: config.GetPatch().GetOperation(), Match: config.GetMatch(),
		}
		var digest model.Digest
		digest.Object(key)
		digest.Text(patch.Field, string(model.MustMarshal(config)))
		patch.From = string(digest)
		if why := decode(patch, config.GetPatch().GetValue(), &decoded.findings); why != "" {
			decoded.findings.Note(patch.Place, "%s", why)
		} else {
			decoded.Patches = append(decoded.Patches, patch)
		}
	}
	return decoded
}

// decode sets the value of a patch, or returns why it has no effect.
func decode(patch *model.Patch, value *structpb.Struct, findings *model.Findings) (why string) {
	kind := valueTypes[patch.ApplyTo]
	if kind == nil {
		return patch.ApplyTo.String() + " belongs to the bootstrap of the Envoy, or to a resource that is not served"
	}
	applicable := func() bool {
		return slices.ContainsFunc(slices.Concat(ClusterPhases, listenerPhases, additions),
			func(ph phase) bool { return ph.selects(patch) })
	}
	if slices.Contains(inserting, patch.Operation) && !applicable() { // there is no order
		patch.Operation = networking.EnvoyFilter_Patch_ADD
	}
	if !applicable() {
		return fmt.Sprintf("%s has no effect on %s, as with istiod", patch.Operation, patch.ApplyTo)
	}
	if patch.Operation == networking.EnvoyFilter_Patch_REMOVE {
		return ""
	}
	message := proto.Clone(kind)
	text, err := json.Marshal(untyped(value.AsMap()))
	if err != nil {
		return err.Error()
	}
	if err := protojson.Unmarshal(text, message); err != nil {
		if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, message) != nil {
			return "the value is not read: " + reason(err)
		}
		findings.Warn(patch.Place, "a part of the value is ignored: %s", reason(err))
	}
	if why := cmp.Or(nestedTooDeep(message), invalidScript(message), longWait(message)); why != "" {
		return why
	}
	if patch.Value = message; patch.Operation != networking.EnvoyFilter_Patch_MERGE {
		return refused(message, 0)
	}
	if cluster, isCluster := message.(*clusterv3.Cluster); isCluster && cluster.GetTransportSocket() != nil {
		for name := range value.GetFields() {
			if name != "transport_socket" && name != "transportSocket" {
				findings.Warn(patch.Place, "%s is ignored beside transport_socket, as with istiod", name)
			}
		}
	}
	return ""
}

// untyped replaces each TypedStruct in a value by the message that it stands for.
func untyped(value any) any {
	switch container := value.(type) {
	case map[string]any:
		if typeURL, _ := container["@type"].(string); strings.HasSuffix(typeURL, ".TypedStruct") {
			content, _ := container["value"].(map[string]any)
			typed := map[string]any{"@type": cmp.Or(container["type_url"], container["typeUrl"])}
			maps.Copy(typed, content)
			return untyped(typed)
		}
		delete(container, "initial_fetch_timeout") // Envoy's default of 15 seconds is the longest: see wait.go
		delete(container, "initialFetchTimeout")
		for key, element := range container {
			container[key] = untyped(element)
		}
	case []any:
		for i, element := range container {
			container[i] = untyped(element)
		}
	}
	return value
}

// reason returns an error of protojson without its blanks and positions, which differ from one call to the next.
func reason(err error) string {
	text := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
	if _, rest, ok := strings.Cut(text, "): "); ok {
		return rest
	}
	return text
}
