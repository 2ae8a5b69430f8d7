package translate

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/jwt"

	"tributary/server/envoy/model"
)

// routes returns the routes of the VirtualService for these clients. Envoy tries routes in order, so routes after a
// match of all requests are left out. A route that Envoy refuses answers 500.
func (r routeContext) routes() (list []*routev3.Route) {
	for i, httpRoute := range r.virtualService.Spec.GetHttp() {
		matches := httpRoute.GetMatch()
		place := r.virtualService.HttpRoute(i)
		if len(matches) == 0 {
			matches = []*networking.HTTPMatchRequest{nil}
		}
		for _, httpMatchRequest := range matches {
			if httpMatchRequest != nil && !r.applies(httpMatchRequest) {
				continue
			}
			var route *routev3.Route
			usable := r.checkMatch(httpRoute, httpMatchRequest, place)
			if usable {
				route = r.route(httpRoute, httpMatchRequest, place)
				if reason := model.Refused(route); reason != "" {
					r.findings.Note(place, "%s: its requests get 500", reason)
					usable = false
				}
			}
			if !usable {
				route = r.refusedRoute(httpRoute, httpMatchRequest)
			}
			list = append(list, route)
			if httpMatchRequest == nil || matchesAllRequests(route.GetMatch()) {
				return list
			}
		}
	}
	return list
}

func matchesAllRequests(m *routev3.RouteMatch) bool {
	return m.GetPrefix() == "/" && len(m.GetHeaders())+len(m.GetQueryParameters())+len(m.GetDynamicMetadata()) == 0
}

func (r routeContext) route(
	httpRoute *networking.HTTPRoute, match *networking.HTTPMatchRequest, place model.Place,
) *routev3.Route {
	route := &routev3.Route{
		Name:       httpRoute.GetName(),
		Match:      routeMatch(match, r.matchOptions()),
		StatPrefix: match.GetStatPrefix(),
		Metadata:   virtualServiceMetadata(r.virtualService.Key),
	}
	r.noteClaims(match, place)
	if match.GetName() != "" {
		route.Name += "." + match.GetName()
	}
	operations := headerOperations(httpRoute.GetHeaders())
	route.RequestHeadersToAdd = operations.requestAdd
	route.RequestHeadersToRemove = operations.requestRemove
	route.ResponseHeadersToAdd = operations.responseAdd
	route.ResponseHeadersToRemove = operations.responseRemove
	switch {
	case httpRoute.GetRedirect() != nil:
		route.Action = r.redirect(httpRoute.GetRedirect(), route.GetMatch())
	case httpRoute.GetDirectResponse() != nil:
		route.Action = directResponse(httpRoute.GetDirectResponse())
	default:
		r.forward(route, httpRoute, place, operations.authority)
	}
	route.Decorator = &routev3.Decorator{Operation: r.operation(route)}
	filters := make(map[string]*anypb.Any)
	if fault := Fault(httpRoute.GetFault()); fault != nil {
		filters["envoy.filters.http.fault"] = model.ToAny(fault)
	}
	if corsPolicy := httpRoute.GetCorsPolicy(); corsPolicy != nil {
		policy := r.cors(corsPolicy, place)
		if reason := model.Refused(policy); reason == "" {
			filters["envoy.filters.http.cors"] = model.ToAny(policy)
		} else {
			r.findings.Note(place.Subfield("corsPolicy"), "%s", reason)
		}
	}
	if len(filters) > 0 {
		route.TypedPerFilterConfig = filters
	}
	return route
}

// noteClaims notes claims of tokens in a match for clients other than gateways, which alone verify these tokens.
func (r routeContext) noteClaims(m *networking.HTTPMatchRequest, place model.Place) {
	for field, headers := range map[string]map[string]*networking.StringMatch{
		"headers": m.GetHeaders(), "withoutHeaders": m.GetWithoutHeaders(),
	} {
		for name := range headers {
			if r.view.Client.Role != model.Ingress && jwt.ToRoutingClaim(name).Match {
				r.findings.Note(place.Subfield("match.%s[%s]", field, name),
					"only gateways know claims: it is taken for a header, which no request has")
			}
		}
	}
}

// withoutPrefix removes the prefix of a match from a path, with the slash after it.
func withoutPrefix(match *routev3.RouteMatch) *matcherv3.RegexMatchAndSubstitute {
	return &matcherv3.RegexMatchAndSubstitute{
		Pattern:      &matcherv3.RegexMatcher{Regex: "^" + regexp.QuoteMeta(match.GetPathSeparatedPrefix()) + "(/?)(.*)"},
		Substitution: `/\2`,
	}
}

// forward makes a route that leads to clusters.
func (r routeContext) forward(
	route *routev3.Route, httpRoute *networking.HTTPRoute, place model.Place, authority string,
) {
	action := &routev3.RouteAction{}
	setTimeout(action, model.Shortened(httpRoute.GetTimeout()), r.view.Client.Role)
	if r.virtualService.Derived == model.DerivedGateway {
		action.ClusterNotFoundResponseCode = routev3.RouteAction_INTERNAL_SERVER_ERROR
	}
	route.Action = &routev3.Route_Route{Route: action}
	if httpRewrite := httpRoute.GetRewrite(); httpRewrite != nil {
		if regex := httpRewrite.GetUriRegexRewrite(); regex != nil {
			action.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{
				Pattern: &matcherv3.RegexMatcher{Regex: regex.GetMatch()}, Substitution: regex.GetRewrite(),
			}
		} else if r.virtualService.Derived == model.DerivedGateway && httpRewrite.GetUri() == "/" {
			action.RegexRewrite = withoutPrefix(route.GetMatch())
		} else {
			action.PrefixRewrite = httpRewrite.GetUri()
		}
		if httpRewrite.GetAuthority() != "" {
			authority = httpRewrite.GetAuthority()
		}
	}
	rewriteHost := func(authority string) {
		if authority != "" && action.GetHostRewriteSpecifier() == nil {
			action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: authority}
		}
	}
	rewriteHost(authority)
	for mirror, share := range mirrors(httpRoute, place) {
		action.RequestMirrorPolicies = append(action.RequestMirrorPolicies, &routev3.RouteAction_RequestMirrorPolicy{
			Cluster:         r.clusterName(mirror.to, mirror.Place),
			RuntimeFraction: &corev3.RuntimeFractionalPercent{DefaultValue: share},
			TraceSampled:    wrapperspb.Bool(false),
		})
	}
	hashed := false
	hash := func(target *networking.Destination) {
		if hashPolicy := HashPolicy(r.policyOf(target).GetLoadBalancer().GetConsistentHash()); hashPolicy != nil {
			action.HashPolicy = append(action.HashPolicy, hashPolicy)
			hashed = len(httpRoute.GetRoute()) == 1
		}
	}
	if len(httpRoute.GetRoute()) == 1 {
		destination := httpRoute.GetRoute()[0]
		cluster := r.clusterName(destination.GetDestination(), place.Subfield("route[0].destination"))
		action.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: cluster}
		operations := headerOperations(destination.GetHeaders())
		route.RequestHeadersToAdd = append(route.RequestHeadersToAdd, operations.requestAdd...)
		route.RequestHeadersToRemove = append(route.RequestHeadersToRemove, operations.requestRemove...)
		route.ResponseHeadersToAdd = append(route.ResponseHeadersToAdd, operations.responseAdd...)
		route.ResponseHeadersToRemove = append(route.ResponseHeadersToRemove, operations.responseRemove...)
		rewriteHost(operations.authority)
		hash(destination.GetDestination())
	} else {
		weighted := &routev3.WeightedCluster{}
		for i, destination := range httpRoute.GetRoute() {
			if destination.GetWeight() == 0 {
				continue // as in Istio, it gets no requests
			}
			operations := headerOperations(destination.GetHeaders())
			part := &routev3.WeightedCluster_ClusterWeight{
				Name:                r.clusterName(destination.GetDestination(), place.Subfield("route[%d].destination", i)),
				Weight:              wrapperspb.UInt32(uint32(destination.GetWeight())),
				RequestHeadersToAdd: operations.requestAdd, RequestHeadersToRemove: operations.requestRemove,
				ResponseHeadersToAdd: operations.responseAdd, ResponseHeadersToRemove: operations.responseRemove,
			}
			if operations.authority != "" {
				part.HostRewriteSpecifier = &routev3.WeightedCluster_ClusterWeight_HostRewriteLiteral{
					HostRewriteLiteral: operations.authority,
				}
			}
			weighted.Clusters = append(weighted.Clusters, part)
			hash(destination.GetDestination())
		}
		model.ScaleWeights(weighted.GetClusters())
		action.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted}
	}
	action.RetryPolicy = retries(httpRoute.GetRetries(), hashed)
}

// HashPolicy returns the hash policy, or nil if there is none or Envoy would reject it.
func HashPolicy(hash *networking.LoadBalancerSettings_ConsistentHashLB) *routev3.RouteAction_HashPolicy {
	policy := &routev3.RouteAction_HashPolicy{}
	switch key := hash.GetHashKey().(type) {
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{
			Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: key.HttpHeaderName},
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_Cookie_{Cookie: &routev3.RouteAction_HashPolicy_Cookie{
			Name: key.HttpCookie.GetName(), Ttl: model.Shortened(key.HttpCookie.GetTtl()), Path: key.HttpCookie.GetPath(),
		}}
	case *networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp:
		policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_ConnectionProperties_{
			ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: key.UseSourceIp},
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_QueryParameter_{
			QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: key.HttpQueryParameterName},
		}
	default:
		return nil
	}
	if model.Refused(policy) != "" {
		return nil
	}
	return policy
}

// operation names the route in traces: cluster host and port if there is one, else the VirtualService, and the path.
func (r routeContext) operation(route *routev3.Route) string {
	path := "/*"
	switch specifier := route.GetMatch().GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		path = specifier.Prefix + "*"
	case *routev3.RouteMatch_Path:
		path = specifier.Path
	case *routev3.RouteMatch_SafeRegex:
		path = specifier.SafeRegex.GetRegex()
	}
	if parts := strings.Split(route.GetRoute().GetCluster(), "|"); len(parts) == 4 {
		return parts[3] + ":" + parts[1] + path
	}
	return r.virtualService.Key.Name + ":" + model.RouteName(r.port) + path
}

// retries returns the retry policy of a route, with Istio's defaults; nil for none. With a hash policy and a single
// destination, retries do not avoid earlier hosts, unless retryIgnorePreviousHosts is true.
func retries(settings *networking.HTTPRetry, hashed bool) *routev3.RetryPolicy {
	retryPolicy := defaultRetries()
	if hashed {
		retryPolicy.RetryHostPredicate = nil
	}
	if settings == nil {
		return retryPolicy
	}
	if settings.GetAttempts() <= 0 {
		return nil
	}
	retryPolicy.NumRetries = wrapperspb.UInt32(uint32(settings.GetAttempts()))
	if settings.GetRetryOn() != "" {
		var conditions []string
		for part := range strings.SplitSeq(settings.GetRetryOn(), ",") {
			part = strings.TrimSpace(part)
			if code, err := strconv.ParseUint(part, 10, 32); err == nil {
				retryPolicy.RetriableStatusCodes = append(retryPolicy.RetriableStatusCodes, uint32(code))
			} else if part != "" {
				conditions = append(conditions, part)
			}
		}
		if len(retryPolicy.GetRetriableStatusCodes()) > 0 && !slices.Contains(conditions, "retriable-status-codes") {
			conditions = append(conditions, "retriable-status-codes")
		}
		retryPolicy.RetryOn = strings.Join(conditions, ",")
	}
	retryPolicy.PerTryTimeout = model.Shortened(settings.GetPerTryTimeout())
	if ignore := settings.GetRetryIgnorePreviousHosts(); ignore != nil && !ignore.GetValue() {
		retryPolicy.RetryHostPredicate = nil
	} else if ignore.GetValue() {
		retryPolicy.RetryHostPredicate = defaultRetries().GetRetryHostPredicate()
	}
	if settings.GetRetryRemoteLocalities().GetValue() {
		retryPolicy.RetryPriority = otherPriorities()
	}
	if backoff := settings.GetBackoff(); backoff != nil {
		retryPolicy.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: backoff}
	}
	return retryPolicy
}

// operations are changes of headers.
type operations struct {
	requestAdd, responseAdd       []*corev3.HeaderValueOption
	requestRemove, responseRemove []string
	authority                     string // replaces the host
}

func headerOperations(settings *networking.Headers) (result operations) {
	additions := func(operations *networking.Headers_HeaderOperations) []*corev3.HeaderValueOption {
		return append(addHeaders(operations.GetSet(), corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD),
			addHeaders(operations.GetAdd(), corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)...)
	}
	result.requestAdd = additions(settings.GetRequest())
	result.responseAdd = additions(settings.GetResponse())
	result.requestRemove = slices.DeleteFunc(slices.Clone(settings.GetRequest().GetRemove()), isInternal)
	result.responseRemove = slices.DeleteFunc(slices.Clone(settings.GetResponse().GetRemove()), isInternal)
	for _, headers := range []map[string]string{settings.GetRequest().GetAdd(), settings.GetRequest().GetSet()} {
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			if strings.EqualFold(name, ":authority") || strings.EqualFold(name, "host") {
				result.authority = headers[name]
			}
		}
	}
	return result
}

func addHeaders(
	headers map[string]string, action corev3.HeaderValueOption_HeaderAppendAction,
) (list []*corev3.HeaderValueOption) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !isInternal(name) && model.IsFormat(headers[name]) {
			list = append(list, &corev3.HeaderValueOption{
				Header:       &corev3.HeaderValue{Key: name, Value: headers[name]},
				AppendAction: action,
			})
		}
	}
	return list
}

// isInternal reports whether Envoy refuses to change a header.
func isInternal(name string) bool {
	return strings.HasPrefix(name, ":") || strings.EqualFold(name, "host")
}
