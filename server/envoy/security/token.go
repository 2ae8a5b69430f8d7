package security

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	securityv1beta1 "istio.io/api/security/v1beta1"
	istiosecurity "istio.io/istio/pkg/config/security"

	"tributary/server/envoy/model"
)

// Seconds that keys are waited for, and that they are kept for.
const keysTimeout, keysAge = 5, 300

// tokenFilter returns the filter that verifies tokens, or nil if there are no rules. A request may come without a token; one that has a
// token that no rule accepts is answered with 401.
func tokenFilter(all Objects, found *model.Findings) *hcmv3.HttpFilter {
	type rule struct {
		*securityv1beta1.JWTRule
		at model.Place
	}
	var rules []rule
	for _, t := range all.Tokens {
		for i, r := range t.Spec.GetJwtRules() {
			rules = append(rules, rule{r, model.Place{Object: t.Key, Field: fmt.Sprintf("spec.jwtRules[%d]", i)}})
		}
	}
	if len(rules) == 0 {
		return nil
	}
	slices.SortStableFunc(rules, func(a, b rule) int { return cmp.Compare(a.GetIssuer(), b.GetIssuer()) })
	out := &jwtv3.JwtAuthentication{Providers: make(map[string]*jwtv3.JwtProvider), BypassCorsPreflight: true}
	missing := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_AllowMissing{AllowMissing: &emptypb.Empty{}}}
	var accepted, optional, required []*jwtv3.JwtRequirement
	for i, r := range rules {
		name := "origins-" + strconv.Itoa(i)
		p, why := verifier(r.JWTRule, all)
		if why != "" {
			found.Note(r.at, "%s: no token of the issuer is accepted", why)
		}
		out.Providers[name] = p
		accepts := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_ProviderName{ProviderName: name}}
		if r.GetPresence() == securityv1beta1.JWTRule_REQUIRED {
			required = append(required, accepts)
			continue
		}
		accepted, optional = append(accepted, accepts), append(optional, anyOf(accepts, missing))
	}
	// Each optional token has to be valid if it is there. Of several that come in one place, one is enough.
	switch len(optional) {
	case 0:
	case 1:
		required = append(required, optional[0])
	default:
		required = append(required, anyOf(append(accepted, allOf(optional))...))
	}
	out.Rules = []*jwtv3.RequirementRule{{
		Match:           &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		RequirementType: &jwtv3.RequirementRule_Requires{Requires: allOf(required)},
	}}
	return model.HTTPFilter(model.TokenFilter, out)
}

func allOf(requirements []*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	if len(requirements) == 1 {
		return requirements[0]
	}
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAll{
		RequiresAll: &jwtv3.JwtRequirementAndList{Requirements: requirements},
	}}
}

func anyOf(all ...*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAny{
		RequiresAny: &jwtv3.JwtRequirementOrList{Requirements: all},
	}}
}

// verifier returns what tokens of a rule are verified by, and why it accepts none.
func verifier(r *securityv1beta1.JWTRule, all Objects) (p *jwtv3.JwtProvider, why string) {
	p = &jwtv3.JwtProvider{
		Issuer: r.GetIssuer(), Audiences: r.GetAudiences(), Forward: r.GetForwardOriginalToken(),
		ForwardPayloadHeader: r.GetOutputPayloadToHeader(), FromParams: r.GetFromParams(), FromCookies: r.GetFromCookies(),
		PayloadInMetadata: model.TokenPayload, ClearRouteCache: all.Client.Role == model.Ingress,
		NormalizePayloadInMetadata: &jwtv3.JwtProvider_NormalizePayload{SpaceDelimitedClaims: []string{"scope", "permission"}},
	}
	for _, name := range r.GetSpaceDelimitedClaims() {
		if n := p.GetNormalizePayloadInMetadata(); !slices.Contains(n.GetSpaceDelimitedClaims(), name) {
			n.SpaceDelimitedClaims = append(n.SpaceDelimitedClaims, name)
		}
	}
	for _, c := range r.GetOutputClaimToHeaders() {
		p.ClaimToHeaders = append(p.ClaimToHeaders, &jwtv3.JwtClaimToHeader{HeaderName: c.GetHeader(), ClaimName: c.GetClaim()})
	}
	for _, h := range r.GetFromHeaders() {
		p.FromHeaders = append(p.FromHeaders, &jwtv3.JwtHeader{Name: h.GetName(), ValuePrefix: h.GetPrefix()})
	}
	why = setKeys(p, r, all)
	if refused := cmp.Or(model.Refused(p), model.Invalid(p)); refused != "" {
		p, why = &jwtv3.JwtProvider{Issuer: r.GetIssuer()}, cmp.Or(why, refused)
	}
	if why != "" {
		p.JwksSourceSpecifier = localKeys(noKeys)
	}
	return p, why
}

// setKeys has tokens of a rule verified by its keys, or by those that Envoy fetches through the cluster of the host and port of their URI.
// It returns why that is not possible.
func setKeys(p *jwtv3.JwtProvider, r *securityv1beta1.JWTRule, all Objects) (why string) {
	switch {
	case r.GetJwks() != "":
		p.JwksSourceSpecifier = localKeys(r.GetJwks())
		return keysProblem(r.GetJwks())
	case r.GetJwksUri() == "":
		return "there is neither jwks nor jwksUri, and the issuer is not asked for its keys"
	}
	host, port, err := keysAt(r.GetJwksUri())
	if err != nil {
		return err.Error()
	}
	cluster, why := all.Cluster(host, port)
	if why != "" {
		return "jwksUri: " + why + ", and Envoy fetches keys from services only"
	}
	p.JwksSourceSpecifier = &jwtv3.JwtProvider_RemoteJwks{RemoteJwks: &jwtv3.RemoteJwks{
		HttpUri: &corev3.HttpUri{
			Uri: r.GetJwksUri(), HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: cluster},
			Timeout: cmp.Or(r.GetTimeout(), &durationpb.Duration{Seconds: keysTimeout}),
		},
		CacheDuration: &durationpb.Duration{Seconds: keysAge},
	}}
	return ""
}

func localKeys(keys string) *jwtv3.JwtProvider_LocalJwks {
	return &jwtv3.JwtProvider_LocalJwks{LocalJwks: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: keys}}}
}

// keysAt returns the host and the port of a URI of keys.
func keysAt(uri string) (host string, port uint32, err error) {
	at, err := istiosecurity.ParseJwksURI(uri)
	if err != nil {
		return "", 0, fmt.Errorf("jwksUri: %w", err)
	}
	return strings.ToLower(at.Hostname.String()), uint32(at.Port), nil //nolint:gosec // of digits
}

// KeyHosts returns the hosts from which the keys of tokens come.
func KeyHosts(spec *securityv1beta1.RequestAuthentication) (hosts []string) {
	for _, r := range spec.GetJwtRules() {
		if host, _, err := keysAt(r.GetJwksUri()); err == nil && r.GetJwks() == "" {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
