package extend

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"tributary/server/envoy/model"
)

// An Envoy acknowledges a listener at once, and keeps the earlier one, with its policies, until it has all that the new
// one refers to. So patches must not have a listener wait for long.

// routesOf returns the names of the routes that a listener asks for over ADS.
func routesOf(m proto.Message) map[string]bool {
	names := make(map[string]bool)
	model.Visit(m, func(m proto.Message, _ bool) {
		if r, ok := m.(*hcmv3.Rds); ok && (r.GetConfigSource() == nil || r.GetConfigSource().GetAds() != nil) {
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
			return "Envoy would wait for the routes " + name + ": a patch may have a route_config, or keep the routes"
		}
	}
	return ""
}

// longest is how long a listener may wait for a module of Wasm, or for keys.
const longest = time.Minute

// slow says why a listener with a message might wait for too long.
func slow(m proto.Message) (why string) {
	model.Visit(m, func(m proto.Message, _ bool) {
		if f, ok := m.(interface {
			GetHttpUri() *corev3.HttpUri
			GetRetryPolicy() *corev3.RetryPolicy
		}); ok {
			uri, retry := f.GetHttpUri(), f.GetRetryPolicy()
			each := uri.GetTimeout().AsDuration() + retry.GetRetryBackOff().GetMaxInterval().AsDuration()
			if tries := time.Duration(retry.GetNumRetries().GetValue()) + 1; max(each, time.Second) > longest/tries {
				why = fmt.Sprintf("a listener might wait for %s for more than %s", uri.GetUri(), longest)
			}
		}
	})
	return why
}

// deepest is how many messages may be in one another. Envoy decodes 100; it decodes the content of an Any apart.
const deepest = 60

// tooDeep says why an Envoy would reject a response with a message, and with it all others in the response.
func tooDeep(m proto.Message) string {
	options, decoded := proto.UnmarshalOptions{RecursionLimit: deepest}, m.ProtoReflect().New().Interface()
	if options.Unmarshal(model.MustMarshal(m), decoded) != nil {
		return fmt.Sprintf("Envoy would refuse it: more than %d messages are in one another", deepest)
	}
	return ""
}
