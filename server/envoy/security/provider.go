package security

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	askhttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	asktcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/pilot/pkg/security/authz/matcher"

	"tributary/server/envoy/model"
)

const (
	askHTTP = "envoy.filters.http.ext_authz"
	askTCP  = "envoy.filters.network.ext_authz"
)

// provider is what both types of providers have.
type provider interface {
	GetService() string
	GetPort() uint32
	GetFailOpen() bool
	GetClearRouteCache() bool
	GetStatusOnError() string
	GetTimeout() *durationpb.Duration
	GetIncludeRequestBodyInCheck() *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody
}

type httpProvider = meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider

// authorizer returns the filters that ask the provider that the policies name, or why there are none. A provider that speaks HTTP is asked
// about requests only: tcp is nil.
func authorizer(policies []*model.AuthorizationPolicy, all Objects) (http *askhttpv3.ExtAuthz, tcp *asktcpv3.ExtAuthz, why string) {
	name := policies[0].Spec.GetProvider().GetName()
	for _, p := range policies {
		if other := p.Spec.GetProvider().GetName(); other != name {
			return nil, nil, fmt.Sprintf("a workload can have one provider, and policies name %q and %q", name, other)
		}
	}
	var known []provider
	for _, p := range all.Config.Spec.GetExtensionProviders() {
		if h, g := p.GetEnvoyExtAuthzHttp(), p.GetEnvoyExtAuthzGrpc(); p.GetName() == name && h != nil {
			known = append(known, h)
		} else if p.GetName() == name && g != nil {
			known = append(known, g)
		}
	}
	if len(known) != 1 {
		return nil, nil, fmt.Sprintf("MeshConfig has %d providers %q that authorize requests", len(known), name)
	}
	http, tcp, why = ask(known[0], name, all)
	if why = cmp.Or(why, model.Refused(http), model.Refused(tcp), model.Invalid(http)); why != "" { // nil is not refused
		why = fmt.Sprintf("provider %q: %s", name, why)
	}
	return http, tcp, why
}

// ask returns the filters that ask a provider of a name, or why it cannot be asked.
func ask(p provider, name string, all Objects) (http *askhttpv3.ExtAuthz, tcp *asktcpv3.ExtAuthz, why string) {
	cluster, why := all.Cluster(p.GetService(), p.GetPort())
	if why != "" {
		return nil, nil, why
	}
	http = &askhttpv3.ExtAuthz{
		FailureModeAllow: p.GetFailOpen(), ClearRouteCache: p.GetClearRouteCache(), TransportApiVersion: corev3.ApiVersion_V3,
		FilterEnabledMetadata: isAsked(rbacHTTP, name),
	}
	if text := p.GetStatusOnError(); text != "" {
		code, err := strconv.ParseInt(text, 10, 32)
		if _, known := typev3.StatusCode_name[int32(code)]; err != nil || !known {
			return nil, nil, fmt.Sprintf("statusOnError %q is no status", text)
		}
		http.StatusOnError = &typev3.HttpStatus{Code: typev3.StatusCode(code)}
	}
	if b := p.GetIncludeRequestBodyInCheck(); b != nil {
		http.WithRequestBody = &askhttpv3.BufferSettings{
			MaxRequestBytes: b.GetMaxRequestBytes(), AllowPartialMessage: b.GetAllowPartialMessage(), PackAsBytes: b.GetPackAsBytes(),
		}
	}
	timeout := cmp.Or(p.GetTimeout(), &durationpb.Duration{Seconds: 600})
	host := p.GetService()[strings.IndexByte(p.GetService(), '/')+1:]
	if h, is := p.(*httpProvider); is {
		service, why := askByHTTP(h)
		service.ServerUri = &corev3.HttpUri{
			Timeout: timeout, Uri: "http://" + host, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: cluster},
		}
		http.Services = &askhttpv3.ExtAuthz_HttpService{HttpService: service}
		asked := h.GetIncludeRequestHeadersInCheck()
		if len(asked) == 0 {
			asked = h.GetIncludeHeadersInCheck() //nolint:staticcheck // what the other one replaces
		}
		http.AllowedHeaders = headers(&why, asked)
		return http, nil, why
	}
	service := &corev3.GrpcService{
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster, Authority: host}},
		Timeout:         timeout,
	}
	http.Services = &askhttpv3.ExtAuthz_GrpcService{GrpcService: service}
	return http, &asktcpv3.ExtAuthz{
		StatPrefix: statTCP, FailureModeAllow: p.GetFailOpen(), TransportApiVersion: corev3.ApiVersion_V3, GrpcService: service,
		FilterEnabledMetadata: isAsked(rbacTCP, name),
	}, ""
}

// askByHTTP returns what a provider that speaks HTTP is asked, and what of its answers goes on.
func askByHTTP(p *httpProvider) (service *askhttpv3.HttpService, why string) {
	if prefix := p.GetPathPrefix(); prefix != "" && !strings.HasPrefix(prefix, "/") {
		why = fmt.Sprintf("pathPrefix %q does not begin with a slash", prefix)
	}
	request, added := &askhttpv3.AuthorizationRequest{}, p.GetIncludeAdditionalHeadersInCheck()
	for _, name := range slices.Sorted(maps.Keys(added)) {
		request.HeadersToAdd = append(request.HeadersToAdd, &corev3.HeaderValue{Key: name, Value: added[name]})
	}
	response := &askhttpv3.AuthorizationResponse{
		AllowedUpstreamHeaders:        headers(&why, p.GetHeadersToUpstreamOnAllow()),
		AllowedClientHeaders:          headers(&why, p.GetHeadersToDownstreamOnDeny()),
		AllowedClientHeadersOnSuccess: headers(&why, p.GetHeadersToDownstreamOnAllow()),
	}
	service = &askhttpv3.HttpService{PathPrefix: p.GetPathPrefix()}
	if proto.Size(request) > 0 {
		service.AuthorizationRequest = request
	}
	if proto.Size(response) > 0 {
		service.AuthorizationResponse = response
	}
	return service, why
}

// headers matches names of headers, which may begin or end with *, or returns nil without names. It sets why if one cannot be matched.
func headers(why *string, names []string) *matcherv3.ListStringMatcher {
	if len(names) == 0 {
		return nil
	}
	out := &matcherv3.ListStringMatcher{}
	for _, name := range names {
		if name == "*" {
			*why = "a header cannot be just *"
		}
		m := matcher.StringMatcher(name)
		m.IgnoreCase = true
		out.Patterns = append(out.Patterns, m)
	}
	return out
}

// isAsked matches requests and connections that a rule of a CUSTOM policy matches: an RBAC filter leaves the name of the rule.
func isAsked(filter, provider string) *matcherv3.MetadataMatcher {
	return matcher.MetadataStringMatcher(filter, shadowAsked+"shadow_effective_policy_id",
		matcher.StringMatcherPrefix(askedPrefix(provider), false))
}
