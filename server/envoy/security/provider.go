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

// ask has the filters that ask a provider.
type ask struct {
	http *askhttpv3.ExtAuthz
	tcp  *asktcpv3.ExtAuthz // nil if the provider speaks HTTP
}

type httpProvider = meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider

// Authorizers yields the services of the providers that authorize requests.
func Authorizers(config *meshv1alpha1.MeshConfig) (services []string) {
	for _, p := range config.GetExtensionProviders() {
		if s := p.GetEnvoyExtAuthzHttp().GetService() + p.GetEnvoyExtAuthzGrpc().GetService(); s != "" {
			services = append(services, s)
		}
	}
	return services
}

// authorizer returns the filters that ask the provider that the policies name, or why there are none.
func authorizer(policies []*model.AuthorizationPolicy, all Objects) (a ask, why string) {
	name := policies[0].Spec.GetProvider().GetName()
	for _, p := range policies[1:] {
		if other := p.Spec.GetProvider().GetName(); other != name {
			return ask{}, fmt.Sprintf("a workload can have one provider, and policies name %q and %q", name, other)
		}
	}
	var found []*meshv1alpha1.MeshConfig_ExtensionProvider
	for _, p := range all.Config.Spec.GetExtensionProviders() {
		if p.GetName() == name && (p.GetEnvoyExtAuthzHttp() != nil || p.GetEnvoyExtAuthzGrpc() != nil) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return ask{}, fmt.Sprintf("MeshConfig has %d providers %q that authorize requests", len(found), name)
	}
	if a, why = askOf(found[0], all); why == "" {
		why = cmp.Or(model.Refused(a.http), model.Refused(a.tcp)) // nil is not refused
	}
	if why != "" {
		return ask{}, fmt.Sprintf("provider %q: %s", name, why)
	}
	return a, ""
}

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

func askOf(of *meshv1alpha1.MeshConfig_ExtensionProvider, all Objects) (ask, string) {
	var p provider = of.GetEnvoyExtAuthzGrpc()
	if of.GetEnvoyExtAuthzHttp() != nil {
		p = of.GetEnvoyExtAuthzHttp()
	}
	cluster, why := all.Cluster(p.GetService(), p.GetPort())
	if why != "" {
		return ask{}, why
	}
	a := ask{http: &askhttpv3.ExtAuthz{
		FailureModeAllow: p.GetFailOpen(), ClearRouteCache: p.GetClearRouteCache(), TransportApiVersion: corev3.ApiVersion_V3,
		FilterEnabledMetadata: isAsked(rbacHTTP),
	}}
	if text := p.GetStatusOnError(); text != "" {
		code, err := strconv.ParseInt(text, 10, 32)
		if _, known := typev3.StatusCode_name[int32(code)]; err != nil || !known {
			return ask{}, fmt.Sprintf("statusOnError %q is no status", text)
		}
		a.http.StatusOnError = &typev3.HttpStatus{Code: typev3.StatusCode(code)}
	}
	if b := p.GetIncludeRequestBodyInCheck(); b != nil {
		a.http.WithRequestBody = &askhttpv3.BufferSettings{
			MaxRequestBytes: b.GetMaxRequestBytes(), AllowPartialMessage: b.GetAllowPartialMessage(), PackAsBytes: b.GetPackAsBytes(),
		}
	}
	timeout := p.GetTimeout()
	if timeout == nil {
		timeout = &durationpb.Duration{Seconds: 600}
	}
	host := p.GetService()[strings.IndexByte(p.GetService(), '/')+1:]
	if h := of.GetEnvoyExtAuthzHttp(); h != nil {
		return a, a.askHTTP(h, host, cluster, timeout)
	}
	service := &corev3.GrpcService{
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster, Authority: host}},
		Timeout:         timeout,
	}
	a.http.Services = &askhttpv3.ExtAuthz_GrpcService{GrpcService: service}
	a.tcp = &asktcpv3.ExtAuthz{
		StatPrefix: statTCP, FailureModeAllow: p.GetFailOpen(), TransportApiVersion: corev3.ApiVersion_V3, GrpcService: service,
		FilterEnabledMetadata: isAsked(rbacTCP),
	}
	return a, ""
}

// askHTTP has the filter ask a service that speaks HTTP, or returns why it cannot.
func (a ask) askHTTP(p *httpProvider, host, cluster string, timeout *durationpb.Duration) string {
	if prefix := p.GetPathPrefix(); prefix != "" && !strings.HasPrefix(prefix, "/") {
		return fmt.Sprintf("pathPrefix %q does not begin with a slash", prefix)
	}
	service := &askhttpv3.HttpService{
		PathPrefix: p.GetPathPrefix(),
		ServerUri: &corev3.HttpUri{
			Timeout: timeout, Uri: "http://" + host, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: cluster},
		},
	}
	asked := p.GetIncludeRequestHeadersInCheck()
	if len(asked) == 0 {
		asked = p.GetIncludeHeadersInCheck() //nolint:staticcheck // what the other one replaces
	}
	for _, names := range [][]string{
		asked, p.GetHeadersToUpstreamOnAllow(), p.GetHeadersToDownstreamOnDeny(), p.GetHeadersToDownstreamOnAllow(),
	} {
		if slices.Contains(names, "*") {
			return "a header cannot be just *"
		}
	}
	a.http.AllowedHeaders = headers(asked)
	request, added := &askhttpv3.AuthorizationRequest{}, p.GetIncludeAdditionalHeadersInCheck()
	for _, name := range slices.Sorted(maps.Keys(added)) {
		request.HeadersToAdd = append(request.HeadersToAdd, &corev3.HeaderValue{Key: name, Value: added[name]})
	}
	response := &askhttpv3.AuthorizationResponse{
		AllowedUpstreamHeaders: headers(p.GetHeadersToUpstreamOnAllow()), AllowedClientHeaders: headers(p.GetHeadersToDownstreamOnDeny()),
		AllowedClientHeadersOnSuccess: headers(p.GetHeadersToDownstreamOnAllow()),
	}
	if proto.Size(request) > 0 {
		service.AuthorizationRequest = request
	}
	if proto.Size(response) > 0 {
		service.AuthorizationResponse = response
	}
	a.http.Services = &askhttpv3.ExtAuthz_HttpService{HttpService: service}
	return ""
}

// headers matches names of headers, which may begin or end with *, or returns nil without names.
func headers(names []string) *matcherv3.ListStringMatcher {
	if len(names) == 0 {
		return nil
	}
	out := &matcherv3.ListStringMatcher{}
	for _, name := range names {
		m := matcher.StringMatcher(name)
		m.IgnoreCase = true
		out.Patterns = append(out.Patterns, m)
	}
	return out
}

// isAsked matches requests and connections that a rule of a CUSTOM policy matches: an RBAC filter leaves the name of the rule.
func isAsked(filter string) *matcherv3.MetadataMatcher {
	return matcher.MetadataStringMatcher(filter, shadowAsked+"shadow_effective_policy_id", matcher.StringMatcherPrefix(askedPrefix, false))
}
