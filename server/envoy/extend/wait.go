package extend

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"tributary/server/envoy/model"
)

// An Envoy acknowledges a listener at once, and keeps the earlier one, with its policies, until it has the resources
// that the new one refers to. So patches must not make a listener wait for long.

// requestedRoutes returns the names of the routes that a listener requests over ADS.
func requestedRoutes(message proto.Message) map[string]bool {
	names := make(map[string]bool)
	model.Visit(message, func(message proto.Message, _ bool) {
		if r, ok := message.(*hcmv3.Rds); ok && (r.GetConfigSource() == nil || r.GetConfigSource().GetAds() != nil) {
			names[r.GetRouteConfigName()] = true
		}
	})
	delete(names, "") // a patch of other fields names no routes
	return names
}

// unserved says why a listener with a message would wait forever. routes are those that the unpatched listener
// requests.
func unserved(message proto.Message, routes map[string]bool) string {
	for name := range requestedRoutes(message) {
		if !routes[name] {
			return "Envoy would wait for the routes " + name + ": a patch may have a route_config, or keep the routes"
		}
	}
	return ""
}

// longestWait limits the time that a listener may wait for a Wasm module or for keys.
const longestWait = time.Minute

// longWait says why a listener with a message might wait longer than longestWait.
func longWait(message proto.Message) (reason string) {
	model.Visit(message, func(message proto.Message, _ bool) {
		if fetcher, ok := message.(interface {
			GetHttpUri() *corev3.HttpUri
			GetRetryPolicy() *corev3.RetryPolicy
		}); ok {
			uri, retry := fetcher.GetHttpUri(), fetcher.GetRetryPolicy()
			attempt := uri.GetTimeout().AsDuration() + retry.GetRetryBackOff().GetMaxInterval().AsDuration()
			if tries := time.Duration(retry.GetNumRetries().GetValue()) + 1; max(attempt, time.Second) > longestWait/tries {
				reason = fmt.Sprintf("a listener might wait for %s for more than %s", uri.GetUri(), longestWait)
			}
		}
	})
	return reason
}

// deepestNesting limits nested messages. Envoy decodes 100 levels, and starts over for the content of an Any.
const deepestNesting = 60

// nestedTooDeep says why an Envoy would reject a response with a message, and all other messages in that response.
func nestedTooDeep(m proto.Message) string {
	options, decoded := proto.UnmarshalOptions{RecursionLimit: deepestNesting}, m.ProtoReflect().New().Interface()
	if options.Unmarshal(model.MustMarshal(m), decoded) != nil {
		return fmt.Sprintf("Envoy would refuse it: more than %d messages are in one another", deepestNesting)
	}
	return ""
}
