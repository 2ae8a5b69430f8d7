package translate

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"tributary/server/envoy/model"
)

// secureHTTP puts what security objects ask of requests before all other filters, which see paths as the mesh has them normalized.
func secureHTTP(s *model.Security, m *hcmv3.HttpConnectionManager) {
	m.HttpFilters = slices.Concat(s.HTTP, m.GetHttpFilters())
	switch s.Paths {
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_DEFAULT, meshv1alpha1.MeshConfig_ProxyPathNormalization_BASE:
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_NONE:
		m.NormalizePath = wrapperspb.Bool(false)
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_MERGE_SLASHES:
		m.MergeSlashes = true
	default: // DECODE_AND_MERGE_SLASHES, and more of a newer version
		m.MergeSlashes, m.PathWithEscapedSlashesAction = true, hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD
	}
}

// secureTCP puts what security objects ask of connections before other filters.
func secureTCP(s *model.Security, filters ...*listenerv3.Filter) []*listenerv3.Filter {
	return slices.Concat(s.TCP, filters)
}
