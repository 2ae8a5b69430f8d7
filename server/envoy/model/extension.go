package model

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Patch is one of an EnvoyFilter's, decoded. It is not modified once it was made.
type Patch struct {
	Place
	ApplyTo   networking.EnvoyFilter_ApplyTo
	Operation networking.EnvoyFilter_Patch_Operation
	Match     *networking.EnvoyFilter_EnvoyConfigObjectMatch // may be nil
	Value     proto.Message                                  // nil if the operation needs none
	From      string                                         // equal for what is equal
}

// In says whether the patch is for a context.
func (p *Patch) In(context networking.EnvoyFilter_PatchContext) bool {
	return p.Match.GetContext() == networking.EnvoyFilter_ANY || p.Match.GetContext() == context
}

// Plugin is the filter of a WasmPlugin. It is not modified once it was made.
type Plugin struct {
	Spec    *extensionsv1alpha1.WasmPlugin
	HTTP    *hcmv3.HttpFilter  // of requests, or nil
	Network *listenerv3.Filter // of connections, or nil
}

// Extension is what EnvoyFilters and WasmPlugins change for clients of a profile. It is not modified once it was made; nil changes nothing.
type Extension struct {
	Patches    []*Patch  // in the order in which they are applied
	Plugins    []*Plugin // in the order of their filters in a phase
	MaxProgram int       // how large the regular expressions of these clients may be

	Objects  []resource.Key // of which it was made
	Findings Findings
	From     string // equal for what is equal
}

// Equal says whether both change the same. Either may be nil.
func (e *Extension) Equal(other *Extension) bool {
	return e == other || e != nil && other != nil && e.From == other.From
}

// The kinds of what patches apply to, by the resource that they change.
var (
	ToClusters = []networking.EnvoyFilter_ApplyTo{networking.EnvoyFilter_CLUSTER}
	ToRoutes   = []networking.EnvoyFilter_ApplyTo{
		networking.EnvoyFilter_ROUTE_CONFIGURATION, networking.EnvoyFilter_VIRTUAL_HOST, networking.EnvoyFilter_HTTP_ROUTE,
	}
	ToListeners = append([]networking.EnvoyFilter_ApplyTo{ // and the routes that are a part of them
		networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_LISTENER_FILTER, networking.EnvoyFilter_FILTER_CHAIN,
		networking.EnvoyFilter_NETWORK_FILTER, networking.EnvoyFilter_HTTP_FILTER,
	}, ToRoutes...)
)
