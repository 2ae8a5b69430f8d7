package derive

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// httpRoutes converts a rule of an HTTPRoute or GRPCRoute, with one match a route.
func (n node) httpRoutes(binding binding, httpRoute *networking.HTTPRoute) (routes []*networking.HTTPRoute) {
	n.refused = false
	httpRoute.Route = n.destinations(binding, httpRoute)
	for _, f := range n.list("filters") {
		f.filter(binding, httpRoute)
	}
	if len(httpRoute.GetRoute()) == 0 && httpRoute.GetRedirect() == nil {
		httpRoute.DirectResponse = &networking.HTTPDirectResponse{Status: 500}
	}
	n.retries(httpRoute)
	defer func() {
		for i := range routes {
			if n.refused {
				routes[i] = refusedRoute(routes[i])
			}
		}
	}()
	for _, m := range n.list("matches") {
		route, match := proto.CloneOf(httpRoute), m.match(binding)
		route.Match = []*networking.HTTPMatchRequest{match}
		if match.GetUri().GetPrefix() == "/" { // the replacement of the slash has to end in one
			slashed(route.GetRewrite())
			slashed(route.GetRedirect())
		}
		routes = append(routes, route)
	}
	if len(routes) > 0 {
		return routes
	}
	if binding.port != 0 {
		httpRoute.Match = []*networking.HTTPMatchRequest{{Port: binding.port}}
	}
	return []*networking.HTTPRoute{httpRoute}
}

// retries converts the retries and timeouts of a rule.
func (n node) retries(httpRoute *networking.HTTPRoute) {
	retry, timeouts := n.get("retry"), n.get("timeouts")
	request, perTry := timeouts.duration("request"), timeouts.duration("backendRequest")
	if retry.value != nil {
		httpRoute.Retries = &networking.HTTPRetry{Attempts: int32(retry.number("attempts", 2))}
	}
	if httpRoute.Timeout = request; httpRoute.GetRetries().GetAttempts() == 0 { // then Istio refuses the other fields
		httpRoute.Timeout = cmp.Or(perTry, request)
		return
	}
	httpRoute.Retries.Backoff, httpRoute.Retries.PerTryTimeout = retry.duration("backoff"), perTry
	// reset: also cut and timed-out tries
	httpRoute.Retries.RetryOn = "connect-failure,refused-stream,reset,unavailable,cancelled"
	for _, code := range retry.list("codes") {
		httpRoute.Retries.RetryOn += fmt.Sprintf(",%d", code.value)
	}
}

// duration returns a duration; nil without one.
func (n node) duration(name string) *durationpb.Duration {
	duration, err := time.ParseDuration(cmp.Or(n.text(name), "0s"))
	if err != nil {
		n.get(name).refuse("%q is no duration such as 10s", n.text(name))
	}
	if duration == 0 {
		return nil
	}
	return durationpb.New(duration)
}

// match converts a match of an HTTPRoute or GRPCRoute.
func (n node) match(b binding) *networking.HTTPMatchRequest {
	match := &networking.HTTPMatchRequest{Port: b.port, Headers: n.values("headers"), QueryParams: n.values("queryParams")}
	if n.unread() {
		n.refuse("it has a condition that is not read")
		match.Headers[otherCondition] = &networking.StringMatch{}
	}
	if n.Kind == "GRPCRoute" {
		match.Uri = n.get("method").grpcMethod()
		if uri := match.GetUri(); uri != nil && uri.GetMatchType() == nil {
			match.Uri, match.Headers[pathCondition] = nil, uri
		}
		return match
	}
	if method := n.text("method"); method != "" {
		match.Method = n.stringMatch("Exact", method)
	}
	path := n.get("path")
	kind, value := cmp.Or(path.text("type"), "PathPrefix"), cmp.Or(path.text("value"), "/")
	if kind == "PathPrefix" && value != "/" {
		value = strings.TrimSuffix(value, "/")
	}
	if match.Uri = path.stringMatch(kind, value); match.GetUri().GetMatchType() == nil {
		match.Uri, match.Headers[pathCondition] = pathFolder(value), match.GetUri()
	}
	return match
}

// stringMatch returns a match of a type of Gateway API; empty if it cannot be read.
func (n node) stringMatch(kind, text string) *networking.StringMatch {
	switch kind {
	case "Exact":
		return &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: text}}
	case "PathPrefix":
		return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: text}}
	case "RegularExpression":
		_, err := regexp.Compile(text)
		if err == nil {
			return &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: text}}
		}
		n.refuse("%v", err)
	default:
		n.refuse("type %q is not supported", kind)
	}
	return &networking.StringMatch{}
}

// values converts matches of headers or of parameters. Of several with one name, the first counts.
func (n node) values(field string) map[string]*networking.StringMatch {
	stringMatches, names := make(map[string]*networking.StringMatch), make(map[string]bool)
	for _, condition := range n.list(field) {
		name := condition.text("name")
		if field == "headers" {
			name = strings.ToLower(name)
		}
		if names[name] {
			continue
		}
		names[name] = true
		stringMatches[condition.text("name")] = condition.stringMatch(cmp.Or(condition.text("type"), "Exact"),
			condition.text("value"))
	}
	return stringMatches
}

// grpcMethod makes a match of the path of a gRPC call, which is "/service/method".
func (n node) grpcMethod() *networking.StringMatch {
	kind, service, method := cmp.Or(n.text("type"), "Exact"), n.text("service"), n.text("method")
	switch {
	case n.value == nil:
		return nil
	case kind != "Exact" && kind != "RegularExpression":
		n.refuse("type %q is not supported", kind)
		return &networking.StringMatch{}
	case service+method == "":
		n.refuse("neither service nor method is given")
		return &networking.StringMatch{}
	case service == "":
		kind, service = "RegularExpression", "[^/]+"
	case kind == "RegularExpression":
		method = cmp.Or(method, ".+")
	case method == "":
		kind = "PathPrefix"
	}
	return n.stringMatch(kind, "/"+service+"/"+method)
}

// destinations converts the backends of a rule that have a weight. The filters of a single backend apply to the rule,
// which is nil for connections.
func (n node) destinations(
	binding binding, rule *networking.HTTPRoute,
) (destinations []*networking.HTTPRouteDestination) {
	backends := slices.DeleteFunc(n.list("backendRefs"), func(ref node) bool { return ref.number("weight", 1) == 0 })
	for _, reference := range backends {
		weight := int32(reference.number("weight", 1))
		destination, wrong := reference.destination(binding)
		if wrong != "" {
			reference.reportUnserved("%s: requests to it fail", wrong)
		}
		destinationRoute := &networking.HTTPRouteDestination{Destination: destination, Weight: weight}
		ruleRefused := n.refused
		for _, filter := range reference.list("filters") {
			changes := &networking.HTTPRoute{Headers: destinationRoute.GetHeaders()}
			filter.filter(binding, changes)
			destinationRoute.Headers, changes.Headers = changes.GetHeaders(), nil
			if len(backends) == 1 && rule != nil && changes.GetRedirect() == nil {
				proto.Merge(rule, changes)
			} else if !proto.Equal(changes, &networking.HTTPRoute{}) {
				filter.refuse("type %q is not supported at this backend", filter.text("type"))
			}
		}
		if n.refused && !ruleRefused { // the other backends keep their shares
			destinationRoute.Destination, destinationRoute.Headers, n.refused = nowhere("refused-backend"), nil, false
		}
		destinations = append(destinations, destinationRoute)
	}
	if len(destinations) == 1 {
		destinations[0].Weight = 0 // the only backend
	}
	return destinations
}

// nowhere returns a destination that does not exist. A gateway answers 500 for it, or closes connections. istiod itself
// uses an empty destination for a refused backend, but refuses such a VirtualService of another source.
func nowhere(subset string) *networking.Destination {
	return &networking.Destination{
		Host: resource.RefusedHost, Subset: subset,
		Port: &networking.PortSelector{Number: 65535},
	}
}

// destination converts a backend, or returns an error text. Sidecars need no ReferenceGrant.
func (n node) destination(binding binding) (to *networking.Destination, wrong string) {
	reference, wrong := n.refer("Service", "ServiceImport", "Hostname")
	hostname := n.serviceHost(reference.Namespace, reference.Name)
	switch {
	case binding.unread:
		return nowhere("refused-backend"), "the parentRef has a field that is not read"
	case reference.Kind == "":
		return nowhere("refused-backend"), wrong
	case n.port() == 0:
		return nowhere("refused-backend"), "port is missing"
	case reference.Kind == "Hostname":
		hostname = reference.Name
	case binding.gateway != mesh && n.ungranted(reference) != "":
		return nowhere("refused-backend"), n.ungranted(reference)
	}
	return &networking.Destination{Host: hostname, Port: &networking.PortSelector{Number: n.port()}}, wrong
}

// filter applies a filter to a route.
func (n node) filter(binding binding, httpRoute *networking.HTTPRoute) {
	kind := n.text("type")
	settings := n.get(map[string]string{
		"RequestHeaderModifier": "requestHeaderModifier", "ResponseHeaderModifier": "responseHeaderModifier",
		"RequestMirror": "requestMirror", "RequestRedirect": "requestRedirect", "URLRewrite": "urlRewrite", "CORS": "cors",
	}[kind])
	headers := cmp.Or(httpRoute.GetHeaders(), &networking.Headers{})
	switch {
	case settings.value == nil:
		n.refuse("type %q is not supported, or has no settings", kind)
	case kind == "RequestHeaderModifier":
		headers.Request, httpRoute.Headers = settings.operations(), headers
	case kind == "ResponseHeaderModifier":
		headers.Response, httpRoute.Headers = settings.operations(), headers
	case kind == "RequestMirror":
		settings.mirror(binding, httpRoute)
	case n.Kind != "HTTPRoute":
		n.refuse("type %q is not supported in a %s", kind, n.Kind)
	case kind == "RequestRedirect":
		httpRoute.Redirect = settings.redirect()
	case kind == "URLRewrite":
		httpRoute.Rewrite = settings.rewrite()
	case kind == "CORS":
		httpRoute.CorsPolicy = settings.cors()
	}
}

// operations converts header operations. Of several with one name, the first counts.
func (n node) operations() *networking.Headers_HeaderOperations {
	operations := &networking.Headers_HeaderOperations{
		Set: make(map[string]string), Add: make(map[string]string),
		Remove: n.texts("remove"),
	}
	for field, headers := range map[string]map[string]string{"set": operations.GetSet(), "add": operations.GetAdd()} {
		for _, h := range slices.Backward(n.list(field)) {
			headers[strings.ToLower(h.text("name"))] = strings.ReplaceAll(h.text("value"), "%", "%%") // a command of Envoy
		}
	}
	return operations
}

func (n node) mirror(b binding, httpRoute *networking.HTTPRoute) {
	reference := n.get("backendRef")
	destination, wrong := reference.destination(b)
	if wrong != "" {
		reference.report("%s: nothing is mirrored to it", wrong)
		return
	}
	policy := &networking.HTTPMirrorPolicy{Destination: destination}
	if part := n.get("fraction"); part.value != nil || n.has("percent") {
		of100 := 100 * float64(part.number("numerator", n.number("percent", 0)))
		policy.Percentage = &networking.Percent{Value: of100 / float64(max(1, part.number("denominator", 100)))}
	}
	httpRoute.Mirrors = append(httpRoute.Mirrors, policy)
}

func (n node) redirect() *networking.HTTPRedirect {
	httpRedirect := &networking.HTTPRedirect{
		RedirectCode: uint32(n.number("statusCode", 0)), Authority: n.text("hostname"), Scheme: n.text("scheme"),
	}
	port := networking.HTTPRedirect_FROM_REQUEST_PORT
	if httpRedirect.GetScheme() != "" {
		port = networking.HTTPRedirect_FROM_PROTOCOL_DEFAULT
	}
	if httpRedirect.RedirectPort = (&networking.HTTPRedirect_DerivePort{DerivePort: port}); n.port() != 0 {
		httpRedirect.RedirectPort = &networking.HTTPRedirect_Port{Port: n.port()}
	}
	path := n.get("path")
	path.checkReplacement()
	if httpRedirect.Uri = path.text("replaceFullPath"); path.text("type") == "ReplacePrefixMatch" {
		if httpRedirect.Uri = replacesPrefix + path.replacedPrefix(); n.opts.PrefixRewrite {
			httpRedirect.Uri, httpRedirect.PrefixRewrite = "", path.replacedPrefix()
		}
	}
	return httpRedirect
}

// checkReplacement refuses an unsupported type of path replacement.
func (n node) checkReplacement() {
	if kind := n.text("type"); n.value != nil && kind != "ReplacePrefixMatch" && kind != "ReplaceFullPath" {
		n.refuse("type %q is not supported", kind)
	}
}

// replacesPrefix begins the path of a redirect, in Istio, that only replaces the prefix of the match.
const replacesPrefix = "%PREFIX()%"

// replacedPrefix returns the replacement of a match's prefix, without a slash at the end; empty for the root.
func (n node) replacedPrefix() string {
	return cmp.Or(strings.TrimSuffix(n.text("replacePrefixMatch"), "/"), "/")
}

// slashed adds a slash to the end of a path that replaces the prefix /.
func slashed(action proto.Message) {
	switch action := action.(type) {
	case *networking.HTTPRewrite:
		if uri := action.GetUri(); uri != "" && uri != "/" {
			action.Uri += "/"
		}
	case *networking.HTTPRedirect:
		if prefix, ok := strings.CutPrefix(action.GetUri(), replacesPrefix); ok && prefix != "/" {
			action.Uri += "/"
		}
		if prefix := action.GetPrefixRewrite(); prefix != "" && prefix != "/" {
			action.PrefixRewrite += "/"
		}
	}
}

// rewrite converts a URLRewrite; nil without an effect.
func (n node) rewrite() *networking.HTTPRewrite {
	httpRewrite := &networking.HTTPRewrite{Authority: n.text("hostname")}
	n.get("path").checkReplacement()
	switch path := n.get("path"); {
	case path.text("type") == "ReplacePrefixMatch":
		httpRewrite.Uri = path.replacedPrefix()
	case path.text("type") == "ReplaceFullPath":
		httpRewrite.UriRegexRewrite = &networking.RegexRewrite{Match: "/.*", Rewrite: path.text("replaceFullPath")}
	case httpRewrite.GetAuthority() == "":
		return nil
	}
	return httpRewrite
}

func (n node) cors() *networking.CorsPolicy {
	corsPolicy := &networking.CorsPolicy{
		AllowMethods: n.texts("allowMethods"), AllowHeaders: n.texts("allowHeaders"), ExposeHeaders: n.texts("exposeHeaders"),
		UnmatchedPreflights: networking.CorsPolicy_IGNORE, // a gateway answers them itself
	}
	for _, origin := range n.texts("allowOrigins") {
		kind := "Exact"
		if strings.Contains(origin, "*") && origin != "*" { // it stands for any number of labels
			kind, origin = "RegularExpression", strings.ReplaceAll(regexp.QuoteMeta(origin), `\*`, "[^/]+")
		}
		corsPolicy.AllowOrigins = append(corsPolicy.AllowOrigins, n.stringMatch(kind, origin))
	}
	if n.raw("allowCredentials") == true {
		corsPolicy.AllowCredentials = wrapperspb.Bool(true)
	}
	if age := n.number("maxAge", 0); age > 0 {
		corsPolicy.MaxAge = durationpb.New(time.Duration(age) * time.Second)
	}
	return corsPolicy
}
