package translate

import (
	"slices"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
)

// secureHTTP puts the filters of security objects before all others, with WasmPlugins among them, and sets the path
// normalization of the mesh. mode and port are those of extend.WithPlugins.
func secureHTTP(view *model.View, manager *hcmv3.HttpConnectionManager, mode typev1beta1.WorkloadMode, port uint32) {
	manager.HttpFilters = extend.WithPlugins(view.Patches, slices.Concat(view.Security.HTTP, manager.GetHttpFilters()),
		mode, port)
	switch view.Security.Paths {
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_DEFAULT, meshv1alpha1.MeshConfig_ProxyPathNormalization_BASE:
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_NONE:
		manager.NormalizePath = wrapperspb.Bool(false)
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_MERGE_SLASHES:
		manager.MergeSlashes = true
	default: // DECODE_AND_MERGE_SLASHES, and values of newer versions
		manager.MergeSlashes = true
		manager.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD
	}
}
