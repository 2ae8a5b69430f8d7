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

// httpRoutes converts a rule of an HTTPRoute or GRPCRoute, with one match a route. It returns false after having reported what makes the
// route worthless.
func (n node) httpRoutes(b binding, out *networking.HTTPRoute) (routes []*networking.HTTPRoute, ok bool) {
	for _, f := range n.list("filters") {
		if !f.filter(out, b.gateway == mesh) {
			return nil, false
		}
	}
	if len(out.GetRoute()) == 0 && out.GetRedirect() == nil {
		out.DirectResponse = &networking.HTTPDirectResponse{Status: 500}
	}
	if !n.retries(out) {
		return nil, false
	}
	for i, m := range n.list("matches") {
		condition, ok := m.match()
		if !ok {
			return nil, false
		}
		if i > 0 {
			out = proto.CloneOf(out)
		}
		condition.Port = b.port
		out.Match = []*networking.HTTPMatchRequest{condition}
		routes = append(routes, out)
	}
	if len(routes) == 0 {
		if b.port != 0 {
			out.Match = []*networking.HTTPMatchRequest{{Port: b.port}}
		}
		routes = append(routes, out)
	}
	return routes, true
}

// retries converts the retries and timeouts of a rule.
func (n node) retries(out *networking.HTTPRoute) bool {
	timeouts, retry := n.get("timeouts"), n.get("retry")
	request, ok := timeouts.duration("request")
	perTry, perTryOK := timeouts.duration("backendRequest")
	backoff, backoffOK := retry.duration("backoff")
	out.Timeout = request
	if retry.value == nil {
		out.Timeout = cmp.Or(perTry, request)
		return ok && perTryOK
	}
	out.Retries = &networking.HTTPRetry{Attempts: int32(retry.number("attempts", 2)), Backoff: backoff, PerTryTimeout: perTry}
	if out.GetRetries().GetAttempts() != 0 { // with no attempts, conditions would be refused
		out.Retries.RetryOn = "connect-failure,refused-stream,unavailable,cancelled"
		for _, code := range retry.list("codes") {
			out.Retries.RetryOn += fmt.Sprintf(",%d", code.value)
		}
	}
	return ok && perTryOK && backoffOK
}

// duration reads a duration, which may be left out.
func (n node) duration(name string) (*durationpb.Duration, bool) {
	text := n.text(name, "0s")
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return nil, n.get(name).refuse("%q is no duration such as 10s", text)
	case d == 0:
		return nil, true
	}
	return durationpb.New(d), true
}

// match converts a match of an HTTPRoute or GRPCRoute.
func (n node) match() (out *networking.HTTPMatchRequest, ok bool) {
	if n.unread() {
		return nil, n.refuse("it has a condition that is not read")
	}
	out = &networking.HTTPMatchRequest{}
	if n.kind == "GRPCRoute" {
		out.Uri, ok = n.get("method").grpcMethod()
	} else {
		out.Uri, ok = n.get("path").path()
		if method := n.text("method"); method != "" {
			out.Method = stringMatch("Exact", method)
		}
	}
	var headersOK, paramsOK bool
	out.Headers, headersOK = n.values("headers")
	out.QueryParams, paramsOK = n.values("queryParams")
	return out, ok && headersOK && paramsOK
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

func (n node) path() (*networking.StringMatch, bool) {
	kind, value := cmp.Or(n.text("type"), "PathPrefix"), n.text("value", "/")
	if kind == "PathPrefix" && value != "/" {
		value = strings.TrimSuffix(value, "/")
	}
	out := stringMatch(kind, value)
	return out, out != nil || n.get("type").refuse("%q is none of Exact, PathPrefix and RegularExpression", kind)
}

// matchType returns the type of a match of anything but a path, or reports that there is no such type.
func (n node) matchType() (kind string, ok bool) {
	kind = cmp.Or(n.text("type"), "Exact")
	ok = kind == "Exact" || kind == "RegularExpression"
	return kind, ok || n.get("type").refuse("%q is neither Exact nor RegularExpression", kind)
}

// values converts matches of headers or of parameters.
func (n node) values(field string) (map[string]*networking.StringMatch, bool) {
	out := make(map[string]*networking.StringMatch)
	for _, v := range n.list(field) {
		kind, ok := v.matchType()
		if !ok {
			return nil, false
		}
		out[v.text("name")] = stringMatch(kind, v.text("value"))
	}
	return out, true
}

// grpcMethod makes a match of the path of a gRPC call, which is "/service/method".
func (n node) grpcMethod() (*networking.StringMatch, bool) {
	service, method := n.text("service"), n.text("method")
	kind, ok := n.matchType()
	switch {
	case n.value == nil || !ok:
		return nil, ok
	case service == "" && method == "":
		return nil, n.refuse("neither service nor method is given")
	case service == "":
		return stringMatch("RegularExpression", "/[^/]+/"+method), true
	case kind == "RegularExpression":
		return stringMatch(kind, "/"+service+"/"+cmp.Or(method, ".+")), true
	case method == "":
		kind = "PathPrefix"
	}
	return stringMatch(kind, "/"+service+"/"+method), true
}

// destinations converts the backends of a rule that have a weight. It returns false after having reported what makes the route worthless.
func (n node) destinations(inMesh bool) (all []*networking.HTTPRouteDestination, ok bool) {
	for _, b := range n.list("backendRefs") {
		to := &networking.HTTPRouteDestination{Weight: int32(b.number("weight", 1))}
		if to.GetWeight() == 0 {
			continue
		}
		destination, wrong, worthless := b.destination(inMesh)
		switch {
		case worthless:
			return nil, b.refuse("%s", wrong)
		case wrong != "":
			b.report("%s: what is sent to it fails", wrong)
		}
		to.Destination = destination
		for _, f := range b.list("filters") {
			if !f.headers(&to.Headers) {
				return nil, f.refuse("type %q is not supported at a backend", f.text("type"))
			}
		}
		all = append(all, to)
	}
	if len(all) == 1 {
		all[0].Weight = 0 // it has all
	}
	return all, true
}

// nowhere is a destination that does not exist. A gateway answers 500 for it, and closes connections. istiod has an empty destination for
// a backend that is refused, and takes such a VirtualService from nobody.
func nowhere(subset string) *networking.Destination {
	return &networking.Destination{Host: "internal.cluster.local", Subset: subset, Port: &networking.PortSelector{Number: 65535}}
}

// destination converts a backend, and says what is wrong with it, and whether that makes the route worthless. Sidecars need no
// ReferenceGrant.
func (n node) destination(inMesh bool) (to *networking.Destination, wrong string, worthless bool) {
	ref := n.reference("", "Service")
	hostname := n.serviceHost(ref.Namespace, ref.Name)
	switch {
	case ref.is(istioGroup, "Hostname") && n.has("namespace"):
		return nil, "a Hostname has no namespace", true
	case ref.is(istioGroup, "Hostname"):
		hostname = ref.Name
	case !ref.is("", "Service") && !ref.is(multiclusterGroup, "ServiceImport"):
		return nowhere("refused-backend"), fmt.Sprintf("kind %s of %q is not supported", ref.Kind, cmp.Or(ref.group, "core")), false
	case !inMesh && !n.allowed(ref):
		return nowhere("refused-backend"), n.ungranted(ref), false
	case ref.Kind == "Service" && strings.Contains(ref.Name, "."):
		return nil, fmt.Sprintf("%q is a host, and the name of a Service is wanted", ref.Name), true
	case n.missingService(ref.Namespace, ref.Name):
		wrong = fmt.Sprintf("Service %s/%s does not exist", ref.Namespace, ref.Name)
	}
	if n.port() == 0 {
		return nil, "port is missing", true
	}
	return &networking.Destination{Host: hostname, Port: &networking.PortSelector{Number: n.port()}}, wrong, false
}
