package security

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	securityv1beta1 "istio.io/api/security/v1beta1"
	istiosecurity "istio.io/istio/pkg/config/security"

	"tributary/server/envoy/model"
)

// The seconds to wait for keys, and to cache them.
const keysTimeout, keysAge = 5, 300

// tokenFilter returns the filter that verifies tokens, or nil without rules. It accepts requests without a token, and
// answers 401 to a token that no rule accepts.
func tokenFilter(objects Objects, findings *model.Findings) *hcmv3.HttpFilter {
	type placedRule struct {
		*securityv1beta1.JWTRule
		place model.Place
	}
	var rules []placedRule
	for _, token := range objects.Tokens {
		for index, rule := range token.Spec.GetJwtRules() {
			place := model.PlaceIn(token.Key, "spec.jwtRules[%d]", index)
			rules = append(rules, placedRule{rule, place})
		}
	}
	if len(rules) == 0 {
		return nil
	}
	slices.SortStableFunc(rules, func(first,
		second placedRule,
	) int {
		return cmp.Compare(first.GetIssuer(), second.GetIssuer())
	})
	filter := &jwtv3.JwtAuthentication{Providers: make(map[string]*jwtv3.JwtProvider), BypassCorsPreflight: true}
	missing := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_AllowMissing{AllowMissing: &emptypb.Empty{}}}
	var accepted, optional, required []*jwtv3.JwtRequirement
	for index, rule := range rules {
		name := "origins-" + strconv.Itoa(index)
		provider, problem := verifier(rule.JWTRule, objects)
		if problem != "" {
			findings.Note(rule.place, "%s: no token of the issuer is accepted", problem)
		}
		filter.Providers[name] = provider
		accepts := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_ProviderName{ProviderName: name}}
		if rule.GetPresence() == securityv1beta1.JWTRule_REQUIRED {
			required = append(required, accepts)
			continue
		}
		accepted, optional = append(accepted, accepts), append(optional, requireAny(accepts, missing))
	}
	// An optional token has to be valid if the request has it. One valid token of several in the same place suffices.
	switch len(optional) {
	case 0:
	case 1:
		required = append(required, optional[0])
	default:
		required = append(required, requireAny(append(accepted, requireAll(optional))...))
	}
	filter.Rules = []*jwtv3.RequirementRule{{
		Match:           model.AnyPath(),
		RequirementType: &jwtv3.RequirementRule_Requires{Requires: requireAll(required)},
	}}
	return model.HTTPFilter(model.TokenFilter, filter)
}

func requireAll(requirements []*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	if len(requirements) == 1 {
		return requirements[0]
	}
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAll{
		RequiresAll: &jwtv3.JwtRequirementAndList{Requirements: requirements},
	}}
}

func requireAny(requirements ...*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAny{
		RequiresAny: &jwtv3.JwtRequirementOrList{Requirements: requirements},
	}}
}

// verifier returns the settings that verify tokens of a rule, and the reason if they accept none.
func verifier(rule *securityv1beta1.JWTRule, objects Objects) (provider *jwtv3.JwtProvider, problem string) {
	provider = &jwtv3.JwtProvider{
		Issuer: rule.GetIssuer(), Audiences: rule.GetAudiences(), Forward: rule.GetForwardOriginalToken(),
		ForwardPayloadHeader: rule.GetOutputPayloadToHeader(), FromParams: rule.GetFromParams(),
		FromCookies:       rule.GetFromCookies(),
		PayloadInMetadata: model.TokenPayload, ClearRouteCache: objects.Client.Role == model.Ingress,
		NormalizePayloadInMetadata: &jwtv3.JwtProvider_NormalizePayload{SpaceDelimitedClaims: []string{
			"scope",
			"permission",
		}},
	}
	for _, name := range rule.GetSpaceDelimitedClaims() {
		if normalized := provider.GetNormalizePayloadInMetadata(); !slices.Contains(normalized.GetSpaceDelimitedClaims(),
			name) {
			normalized.SpaceDelimitedClaims = append(normalized.SpaceDelimitedClaims, name)
		}
	}
	for _, claim := range rule.GetOutputClaimToHeaders() {
		provider.ClaimToHeaders = append(provider.ClaimToHeaders,
			&jwtv3.JwtClaimToHeader{HeaderName: claim.GetHeader(), ClaimName: claim.GetClaim()})
	}
	for _, header := range rule.GetFromHeaders() {
		provider.FromHeaders = append(provider.FromHeaders,
			&jwtv3.JwtHeader{Name: header.GetName(), ValuePrefix: header.GetPrefix()})
	}
	problem = setKeys(provider, rule, objects)
	if refused := cmp.Or(model.Refused(provider), model.Invalid(provider)); refused != "" {
		provider, problem = &jwtv3.JwtProvider{Issuer: rule.GetIssuer()}, cmp.Or(problem, refused)
	}
	if problem != "" {
		provider.JwksSourceSpecifier = inlineKeys(noKeys)
	}
	return provider, problem
}

// setKeys sets the keys of a rule, or the cluster through which Envoy fetches them from their URI. It returns the
// reason if it cannot.
func setKeys(provider *jwtv3.JwtProvider, rule *securityv1beta1.JWTRule, objects Objects) (problem string) {
	switch {
	case rule.GetJwks() != "":
		provider.JwksSourceSpecifier = inlineKeys(rule.GetJwks())
		return keysProblem(rule.GetJwks())
	case rule.GetJwksUri() == "":
		return "there is neither jwks nor jwksUri, and the issuer is not asked for its keys"
	}
	host, port, err := keyLocation(rule.GetJwksUri())
	if err != nil {
		return err.Error()
	}
	cluster, problem := objects.Cluster(host, port)
	if problem != "" {
		return "jwksUri: " + problem + ", and Envoy fetches keys from services only"
	}
	provider.JwksSourceSpecifier = &jwtv3.JwtProvider_RemoteJwks{RemoteJwks: &jwtv3.RemoteJwks{
		HttpUri: &corev3.HttpUri{
			Uri: rule.GetJwksUri(), HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: cluster},
			Timeout: cmp.Or(model.Shortened(rule.GetTimeout()), &durationpb.Duration{Seconds: keysTimeout}),
		},
		CacheDuration: &durationpb.Duration{Seconds: keysAge},
	}}
	return ""
}

func inlineKeys(keys string) *jwtv3.JwtProvider_LocalJwks {
	return &jwtv3.JwtProvider_LocalJwks{LocalJwks: &corev3.DataSource{
		Specifier: &corev3.DataSource_InlineString{InlineString: keys},
	}}
}

// keyLocation returns the host and port of a URI of keys.
func keyLocation(uri string) (host string, port uint32, err error) {
	location, err := istiosecurity.ParseJwksURI(uri)
	if err != nil {
		return "", 0, fmt.Errorf("jwksUri: %w", err)
	}
	return strings.ToLower(location.Hostname.String()), uint32(location.Port), nil //nolint:gosec // of digits
}

// KeyHosts returns the hosts that serve keys of tokens.
func KeyHosts(spec *securityv1beta1.RequestAuthentication) (hosts []string) {
	for _, rule := range spec.GetJwtRules() {
		if host, _, err := keyLocation(rule.GetJwksUri()); err == nil && rule.GetJwks() == "" {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
