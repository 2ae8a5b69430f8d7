package security

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// Deny refuses all requests and connections, since objects have no valid version.
func Deny(objects []resource.Key) *model.Security {
	s := &model.Security{
		HTTP: []*hcmv3.HttpFilter{model.HTTPFilter(rbacHTTP, &rbachttpv3.RBAC{Rules: &rbacv3.RBAC{}})},
		TCP:  []*listenerv3.Filter{model.NetworkFilter(rbacTCP, &rbactcpv3.RBAC{Rules: &rbacv3.RBAC{}, StatPrefix: statTCP})},
	}
	var from model.Digest
	from.Text("invalid")
	for _, key := range objects {
		from.Object(key)
		s.Findings.Note(model.Place{Of: key}, "no version of it is valid: all traffic that it may be about is refused")
	}
	s.From = string(from)
	return s
}
