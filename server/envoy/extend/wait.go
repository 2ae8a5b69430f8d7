package extend

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"tributary/server/envoy/model"
)

// An Envoy acknowledges a listener at once, and keeps the earlier one, with its policies, until the new one has what it
// refers to. So patches must not have a listener wait for long.

// routesOf returns the names of the routes that a listener asks for over ADS.
func routesOf(m proto.Message) map[string]bool {
	names := make(map[string]bool)
	model.Visit(m, func(m proto.Message, _ bool) {
		if r, is := m.(*hcmv3.Rds); is && (r.GetConfigSource() == nil || r.GetConfigSource().GetAds() != nil) {
			names[r.GetRouteConfigName()] = true
		}
	})
	delete(names, "") // of a patch of other fields
	return names
}

// unserved says why a listener with a message, which has these routes without patches, would wait for ever.
func unserved(m proto.Message, routes map[string]bool) string {
	for name := range routesOf(m) {
		if !routes[name] {
			return "a listener has the routes that it has without patches, or a route_config: Envoy would wait for others"
		}
	}
	return ""
}

// longest is how long a listener may wait for a module of Wasm, or for keys.
const longest = time.Minute

// slow says why a listener with a message might wait for too long.
func slow(m proto.Message) (why string) {
	model.Visit(m, func(m proto.Message, _ bool) {
		if f, is := m.(interface {
			GetHttpUri() *corev3.HttpUri
			GetRetryPolicy() *corev3.RetryPolicy
		}); is {
			each := f.GetHttpUri().GetTimeout().AsDuration() + f.GetRetryPolicy().GetRetryBackOff().GetMaxInterval().AsDuration()
			if tries := time.Duration(f.GetRetryPolicy().GetNumRetries().GetValue()) + 1; max(each, time.Second) > longest/tries {
				why = fmt.Sprintf("a listener might wait for %s for more than %s", f.GetHttpUri().GetUri(), longest)
			}
		}
	})
	return why
}
