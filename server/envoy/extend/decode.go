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

// values are the messages of the values of patches.
var values = map[networking.EnvoyFilter_ApplyTo]proto.Message{
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

// Decode decodes the patches of an EnvoyFilter. It returns nil without one.
func Decode(key resource.Key, spec *networking.EnvoyFilter) *Decoded {
	if spec == nil {
		return nil
	}
	d := &Decoded{EnvoyFilter: spec}
	for i, c := range spec.GetConfigPatches() {
		p := &model.Patch{
			Place:   model.Place{Of: key, Field: fmt.Sprintf("spec.configPatches[%d]", i)},
			ApplyTo: c.GetApplyTo(), Operation: c.GetPatch().GetOperation(), Match: c.GetMatch(),
		}
		var from model.Digest
		from.Object(key)
		from.Text(p.Field, string(model.MustMarshal(c)))
		p.From = string(from)
		if why := decode(p, c.GetPatch().GetValue(), &d.found); why != "" {
			d.found.Note(p.Place, "%s", why)
		} else {
			d.Patches = append(d.Patches, p)
		}
	}
	return d
}

// decode sets the value of a patch, or returns why it has no effect.
func decode(p *model.Patch, value *structpb.Struct, found *model.Findings) (why string) {
	kind := values[p.ApplyTo]
	if kind == nil {
		return p.ApplyTo.String() + " belongs to the bootstrap of the Envoy, or to what is not served"
	}
	has := func() bool {
		return slices.ContainsFunc(slices.Concat(ToClusters, toListeners, added), func(ph phase) bool { return ph.has(p) })
	}
	if slices.Contains(inserting, p.Operation) && !has() { // there is no order
		p.Operation = networking.EnvoyFilter_Patch_ADD
	}
	if !has() {
		return fmt.Sprintf("%s has no effect on %s, as with istiod", p.Operation, p.ApplyTo)
	}
	if p.Operation == networking.EnvoyFilter_Patch_REMOVE {
		return ""
	}
	m := proto.Clone(kind)
	text, err := json.Marshal(untyped(value.AsMap()))
	if err != nil {
		return err.Error()
	}
	if err := protojson.Unmarshal(text, m); err != nil {
		if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, m) != nil {
			return "the value is not read: " + reason(err)
		}
		found.Warn(p.Place, "a part of the value is ignored: %s", reason(err))
	}
	if why := cmp.Or(tooDeep(m), invalidScript(m), slow(m)); why != "" {
		return why
	}
	if p.Value = m; p.Operation != networking.EnvoyFilter_Patch_MERGE {
		return refused(m, 0)
	}
	if c, is := m.(*clusterv3.Cluster); is && c.GetTransportSocket() != nil {
		for name := range value.GetFields() {
			if name != "transport_socket" && name != "transportSocket" {
				found.Warn(p.Place, "%s is ignored beside transport_socket, as with istiod", name)
			}
		}
	}
	return ""
}

// untyped returns a value with what each TypedStruct in it stands for.
func untyped(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if of, _ := v["@type"].(string); strings.HasSuffix(of, ".TypedStruct") {
			content, _ := v["value"].(map[string]any)
			typed := map[string]any{"@type": cmp.Or(v["type_url"], v["typeUrl"])}
			maps.Copy(typed, content)
			return untyped(typed)
		}
		delete(v, "initial_fetch_timeout") // Envoy's default of 15 seconds is the longest: see wait.go
		delete(v, "initialFetchTimeout")
		for key, element := range v {
			v[key] = untyped(element)
		}
	case []any:
		for i, element := range v {
			v[i] = untyped(element)
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
