package translate

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"tributary/server/envoy/model"
)

// secureHTTP puts what security objects ask of requests before all other filters.
func secureHTTP(s *model.Security, m *hcmv3.HttpConnectionManager) {
	if s != nil {
		m.HttpFilters = slices.Concat(s.HTTP, m.GetHttpFilters())
	}
}

// secureTCP puts what security objects ask of connections before other filters.
func secureTCP(s *model.Security, filters ...*listenerv3.Filter) []*listenerv3.Filter {
	if s == nil {
		return filters
	}
	return slices.Concat(s.TCP, filters)
}
