package derive

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"
)

// httpRoutes converts a rule of an HTTPRoute or GRPCRoute, with one match a route.
func (n node) httpRoutes(b binding, out *networking.HTTPRoute) (routes []*networking.HTTPRoute) {
	out.Route = n.destinations(b)
	for _, f := range n.list("filters") {
		f.filter(b, out)
	}
	if len(out.GetRoute()) == 0 && out.GetRedirect() == nil {
		out.DirectResponse = &networking.HTTPDirectResponse{Status: 500}
	}
	n.retries(out)
	for i, m := range n.list("matches") {
		if i > 0 {
			out = proto.CloneOf(out)
		}
		out.Match = []*networking.HTTPMatchRequest{m.match(b)}
		routes = append(routes, out)
	}
	if len(routes) == 0 {
		if b.port != 0 {
			out.Match = []*networking.HTTPMatchRequest{{Port: b.port}}
		}
		routes = append(routes, out)
	}
	return routes
}

// retries converts the retries and timeouts of a rule.
func (n node) retries(out *networking.HTTPRoute) {
	retry, timeouts := n.get("retry"), n.get("timeouts")
	request, perTry := timeouts.duration("request"), timeouts.duration("backendRequest")
	out.Timeout = request
	if retry.value == nil {
		out.Timeout = cmp.Or(perTry, request)
		return
	}
	out.Retries = &networking.HTTPRetry{
		Attempts: int32(retry.number("attempts", 2)), Backoff: retry.duration("backoff"), PerTryTimeout: perTry,
	}
	if out.GetRetries().GetAttempts() != 0 { // with no attempts, conditions would be refused
		out.Retries.RetryOn = "connect-failure,refused-stream,unavailable,cancelled"
		for _, code := range retry.list("codes") {
			out.Retries.RetryOn += fmt.Sprintf(",%d", code.value)
		}
	}
}

// duration reads a duration, which is nil if it is left out.
func (n node) duration(name string) *durationpb.Duration {
	d, err := time.ParseDuration(n.text(name, "0s"))
	if err != nil {
		n.get(name).refuse("%q is no duration such as 10s", n.text(name))
	}
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// match converts a match of an HTTPRoute or GRPCRoute.
func (n node) match(b binding) *networking.HTTPMatchRequest {
	out := &networking.HTTPMatchRequest{Port: b.port, Headers: n.values("headers"), QueryParams: n.values("queryParams")}
	if n.unread() {
		n.refuse("it has a condition that is not read")
	}
	if n.kind == "GRPCRoute" {
		out.Uri = n.get("method").grpcMethod()
		return out
	}
	if method := n.text("method"); method != "" {
		out.Method = stringMatch("Exact", method)
	}
	path := n.get("path")
	kind, value := cmp.Or(path.text("type"), "PathPrefix"), path.text("value", "/")
	if kind == "PathPrefix" && value != "/" {
		value = strings.TrimSuffix(value, "/")
	}
	if out.Uri = stringMatch(kind, value); out.GetUri() == nil {
		path.get("type").refuse("%q is none of Exact, PathPrefix and RegularExpression", kind)
	}
	return out
}

// stringMatch returns a match of a type of Gateway API, or nil if there is no such type.
func stringMatch(kind, text string) *networking.StringMatch {
	switch kind {
	case "Exact":
		return &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: text}}
	case "PathPrefix":
		return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: text}}
	case "RegularExpression":
		return &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: text}}
	}
	return nil
}

// matchType returns the type of a match of anything but a path.
func (n node) matchType() string {
	kind := cmp.Or(n.text("type"), "Exact")
	if kind != "Exact" && kind != "RegularExpression" {
		n.get("type").refuse("%q is neither Exact nor RegularExpression", kind)
	}
	return kind
}

// values converts matches of headers or of parameters.
func (n node) values(field string) map[string]*networking.StringMatch {
	out := make(map[string]*networking.StringMatch)
	for _, v := range n.list(field) {
		out[v.text("name")] = stringMatch(v.matchType(), v.text("value"))
	}
	return out
}

// grpcMethod makes a match of the path of a gRPC call, which is "/service/method".
func (n node) grpcMethod() *networking.StringMatch {
	kind, service, method := n.matchType(), n.text("service"), n.text("method")
	switch {
	case n.value == nil:
		return nil
	case service+method == "":
		n.refuse("neither service nor method is given")
	case service == "":
		kind, service = "RegularExpression", "[^/]+"
	case kind == "RegularExpression":
		method = cmp.Or(method, ".+")
	case method == "":
		kind = "PathPrefix"
	}
	return stringMatch(kind, "/"+service+"/"+method)
}

// destinations converts the backends of a rule that have a weight.
func (n node) destinations(b binding) (all []*networking.HTTPRouteDestination) {
	for _, ref := range n.list("backendRefs") {
		weight := int32(ref.number("weight", 1))
		if weight == 0 {
			continue
		}
		destination, wrong := ref.destination(b)
		switch {
		case destination == nil:
			ref.refuse("%s", wrong)
		case wrong != "":
			ref.report("%s: what is sent to it fails", wrong)
		}
		to := &networking.HTTPRouteDestination{Destination: destination, Weight: weight}
		for _, f := range ref.list("filters") {
			if !f.headers(&to.Headers) {
				f.refuse("type %q is not supported at a backend", f.text("type"))
			}
		}
		all = append(all, to)
	}
	if len(all) == 1 {
		all[0].Weight = 0 // it has all
	}
	return all
}

// nowhere is a destination that does not exist. A gateway answers 500 for it, and closes connections. istiod has an empty destination for
// a backend that is refused, and takes such a VirtualService from nobody.
func nowhere(subset string) *networking.Destination {
	return &networking.Destination{Host: "internal.cluster.local", Subset: subset, Port: &networking.PortSelector{Number: 65535}}
}

// destination converts a backend, and says what is wrong with it; it is nil if that makes the route worthless. Sidecars need no
// ReferenceGrant.
func (n node) destination(b binding) (to *networking.Destination, wrong string) {
	ref := n.reference("", "Service")
	hostname := n.serviceHost(ref.Namespace, ref.Name)
	switch isHostname := ref.is(istioGroup, "Hostname"); {
	case isHostname && n.has("namespace"):
		return nil, "a Hostname has no namespace"
	case isHostname:
		hostname = ref.Name
	case !ref.is("", "Service") && !ref.is(multiclusterGroup, "ServiceImport"):
		return nowhere("refused-backend"), fmt.Sprintf("kind %s of %q is not supported", ref.Kind, cmp.Or(ref.group, "core"))
	case b.gateway != mesh && !n.allowed(ref):
		return nowhere("refused-backend"), n.ungranted(ref)
	case ref.Kind == "Service" && strings.Contains(ref.Name, "."):
		return nil, fmt.Sprintf("%q is a host, and the name of a Service is wanted", ref.Name)
	case n.missingService(ref.Namespace, ref.Name):
		wrong = ref.String() + " does not exist"
	}
	if n.port() == 0 {
		return nil, "port is missing"
	}
	return &networking.Destination{Host: hostname, Port: &networking.PortSelector{Number: n.port()}}, wrong
}
