package xdstest

import (
	"fmt"
	"path"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

// Description is a request in one line, without its empty fields: the ID of the node, the last part of the type, the
// names, versions, nonce and rejection. Delta has "+[NAMES]" for new subscriptions, "-[NAMES]" for ended ones, and
// "has map[NAME:VERSION]" for the initial versions.
func Description(request any) string {
	var fields []string
	add := func(present bool, format string, args ...any) {
		if present {
			fields = append(fields, fmt.Sprintf(format, args...))
		}
	}
	message := request.(interface {
		GetNode() *corev3.Node
		GetTypeUrl() string
		GetResponseNonce() string
		GetErrorDetail() *rpcstatus.Status
	})
	add(message.GetNode() != nil, "node %s", message.GetNode().GetId())
	add(true, "%s", path.Base(message.GetTypeUrl()))
	switch request := request.(type) {
	case *discoveryv3.DiscoveryRequest:
		add(len(request.GetResourceNames()) > 0, "%v", request.GetResourceNames())
		add(request.GetVersionInfo() != "", "version %s", request.GetVersionInfo())
	case *discoveryv3.DeltaDiscoveryRequest:
		add(len(request.GetResourceNamesSubscribe()) > 0, "+%v", request.GetResourceNamesSubscribe())
		add(len(request.GetResourceNamesUnsubscribe()) > 0, "-%v", request.GetResourceNamesUnsubscribe())
		add(len(request.GetInitialResourceVersions()) > 0, "has %v", request.GetInitialResourceVersions())
	}
	add(message.GetResponseNonce() != "", "nonce %s", message.GetResponseNonce())
	detail := message.GetErrorDetail()
	add(detail != nil, "error %s: %s", codes.Code(detail.GetCode()), detail.GetMessage()) //nolint:gosec // a code
	return strings.Join(fields, " ")
}
