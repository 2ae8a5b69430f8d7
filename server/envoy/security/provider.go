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

// provider has the common settings of HTTP and gRPC providers.
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

// authorizer returns the filters that ask the policies' provider for a decision, or the reason for their absence.
// tcpFilter is nil for a provider of HTTP, which decides on requests only.
func authorizer(policies []*model.AuthorizationPolicy, objects Objects) (httpFilter *askhttpv3.ExtAuthz,
	tcpFilter *asktcpv3.ExtAuthz, reason string,
) {
	name := policies[0].Spec.GetProvider().GetName()
	for _, candidate := range policies {
		if otherName := candidate.Spec.GetProvider().GetName(); otherName != name {
			return nil, nil, fmt.Sprintf("a workload can have one provider, and policies name %q and %q", name, otherName)
		}
	}
	var candidates []provider
	for _, candidate := range objects.Config.Spec.GetExtensionProviders() {
		if httpCandidate, grpcCandidate := candidate.GetEnvoyExtAuthzHttp(),
			candidate.GetEnvoyExtAuthzGrpc(); candidate.GetName() == name && httpCandidate != nil {
			candidates = append(candidates, httpCandidate)
		} else if candidate.GetName() == name && grpcCandidate != nil {
			candidates = append(candidates, grpcCandidate)
		}
	}
	if len(candidates) != 1 {
		return nil, nil, fmt.Sprintf("MeshConfig has %d providers %q that authorize requests", len(candidates), name)
	}
	httpFilter, tcpFilter, reason = authorizationFilters(candidates[0], name, objects)
	if reason = cmp.Or(reason, model.Refused(httpFilter), model.Refused(tcpFilter),
		model.Invalid(httpFilter)); reason != "" { // nil is valid
		reason = fmt.Sprintf("provider %q: %s", name, reason)
	}
	return httpFilter, tcpFilter, reason
}

// authorizationFilters returns the filters that ask a named provider, or the reason for their absence.
func authorizationFilters(provider provider, name string, objects Objects) (httpFilter *askhttpv3.ExtAuthz,
	tcpFilter *asktcpv3.ExtAuthz, problem string,
) {
	cluster, problem := objects.Cluster(provider.GetService(), provider.GetPort())
	if problem != "" {
		return nil, nil, problem
	}
	httpFilter = &askhttpv3.ExtAuthz{
		FailureModeAllow: provider.GetFailOpen(), ClearRouteCache: provider.GetClearRouteCache(),
		TransportApiVersion:   corev3.ApiVersion_V3,
		FilterEnabledMetadata: askedMetadata(rbacHTTP, name),
	}
	if text := provider.GetStatusOnError(); text != "" {
		code, err := strconv.ParseInt(text, 10, 32)
		if _, valid := typev3.StatusCode_name[int32(code)]; err != nil || !valid {
			return nil, nil, fmt.Sprintf("statusOnError %q is no status", text)
		}
		httpFilter.StatusOnError = &typev3.HttpStatus{Code: typev3.StatusCode(code)}
	}
	if body := provider.GetIncludeRequestBodyInCheck(); body != nil {
		httpFilter.WithRequestBody = &askhttpv3.BufferSettings{
			MaxRequestBytes: body.GetMaxRequestBytes(), AllowPartialMessage: body.GetAllowPartialMessage(),
			PackAsBytes: body.GetPackAsBytes(),
		}
	}
	timeout := cmp.Or(model.Shortened(provider.GetTimeout()), &durationpb.Duration{Seconds: 600})
	host := provider.GetService()[strings.IndexByte(provider.GetService(), '/')+1:]
	if httpProvider, isHTTP := provider.(*httpProvider); isHTTP {
		service, problem := httpService(httpProvider)
		service.ServerUri = &corev3.HttpUri{
			Timeout: timeout, Uri: "http://" + host, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: cluster},
		}
		httpFilter.Services = &askhttpv3.ExtAuthz_HttpService{HttpService: service}
		requestHeaders := httpProvider.GetIncludeRequestHeadersInCheck()
		if len(requestHeaders) == 0 {
			requestHeaders = httpProvider.GetIncludeHeadersInCheck() //nolint:staticcheck // the field's predecessor
		}
		httpFilter.AllowedHeaders = headerMatchers(&problem, requestHeaders)
		return httpFilter, nil, problem
	}
	service := &corev3.GrpcService{
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
			ClusterName: cluster,
			Authority:   host,
		}},
		Timeout: timeout,
	}
	httpFilter.Services = &askhttpv3.ExtAuthz_GrpcService{GrpcService: service}
	return httpFilter, &asktcpv3.ExtAuthz{
		StatPrefix: statTCP, FailureModeAllow: provider.GetFailOpen(), TransportApiVersion: corev3.ApiVersion_V3,
		GrpcService:           service,
		FilterEnabledMetadata: askedMetadata(rbacTCP, name),
	}, ""
}

// httpService returns the headers that Envoy adds to requests to an HTTP provider and copies from its answers.
func httpService(provider *httpProvider) (service *askhttpv3.HttpService, problem string) {
	if prefix := provider.GetPathPrefix(); prefix != "" && !strings.HasPrefix(prefix, "/") {
		problem = fmt.Sprintf("pathPrefix %q does not begin with a slash", prefix)
	}
	request, added := &askhttpv3.AuthorizationRequest{}, provider.GetIncludeAdditionalHeadersInCheck()
	for _, name := range slices.Sorted(maps.Keys(added)) {
		request.HeadersToAdd = append(request.HeadersToAdd, &corev3.HeaderValue{Key: name, Value: added[name]})
	}
	response := &askhttpv3.AuthorizationResponse{
		AllowedUpstreamHeaders:        headerMatchers(&problem, provider.GetHeadersToUpstreamOnAllow()),
		AllowedClientHeaders:          headerMatchers(&problem, provider.GetHeadersToDownstreamOnDeny()),
		AllowedClientHeadersOnSuccess: headerMatchers(&problem, provider.GetHeadersToDownstreamOnAllow()),
	}
	service = &askhttpv3.HttpService{PathPrefix: provider.GetPathPrefix()}
	if proto.Size(request) > 0 {
		service.AuthorizationRequest = request
	}
	if proto.Size(response) > 0 {
		service.AuthorizationResponse = response
	}
	return service, problem
}

// headerMatchers matches names of headers, which may begin or end with *, or returns nil without names. It sets problem
// for a name that it cannot match.
func headerMatchers(problem *string, names []string) *matcherv3.ListStringMatcher {
	if len(names) == 0 {
		return nil
	}
	matchers := &matcherv3.ListStringMatcher{}
	for _, name := range names {
		if name == "*" {
			*problem = "a header cannot be just *"
		}
		pattern := matcher.StringMatcher(name)
		pattern.IgnoreCase = true
		matchers.Patterns = append(matchers.Patterns, pattern)
	}
	return matchers
}

// askedMetadata matches the metadata of requests and connections that matched a rule of a CUSTOM policy: an RBAC filter
// sets the name of the rule.
func askedMetadata(filter, provider string) *matcherv3.MetadataMatcher {
	return matcher.MetadataStringMatcher(filter, askedStatPrefix+"shadow_effective_policy_id",
		matcher.StringMatcherPrefix(askedPrefix(provider), false))
}
