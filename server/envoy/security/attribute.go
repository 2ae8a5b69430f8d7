package security

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"istio.io/istio/pilot/pkg/security/authz/matcher"
	istiosecurity "istio.io/istio/pkg/config/security"

	"tributary/server/envoy/model"
)

// attribute is a property of requests or connections that a rule has conditions on, and M what matches it: a Permission or a Principal.
type attribute[M any] struct {
	ids  bool                                                          // its values are in all trust domains of the mesh
	http bool                                                          // connections that are not HTTP do not have it
	one  func(r *ruleContext, key, value string) (*M, error)           // matches a value
	some func(r *ruleContext, key string, values []string) (*M, error) // matches any of the values, unless one is set
}

var errHTTP = errors.New("only requests have it")

// of returns a matcher of any of the values.
func (a attribute[M]) of(f form[M], r *ruleContext, key string, values []string) (*M, error) {
	if a.http && r.tcp {
		return nil, errHTTP
	}
	if a.some != nil {
		return a.some(r, key, values)
	}
	if a.ids {
		values = inTrustDomains(values, r.domains)
	}
	all := make([]*M, len(values))
	for i, v := range values {
		var err error
		if all[i], err = a.one(r, key, v); err != nil {
			return nil, err
		}
	}
	return f.any(all), nil
}

// permissionsOf and principalsOf have the attributes by their keys in conditions, without what stands in brackets, and by the names of the
// fields of operations that are no such keys.
var permissionsOf = map[string]attribute[permission]{
	"destination.ip": byAddress(func(r *corev3.CidrRange) *permission {
		return &permission{Rule: &rbacv3.Permission_DestinationIp{DestinationIp: r}}
	}),
	"destination.port": {one: func(_ *ruleContext, _, value string) (*permission, error) {
		port, err := strconv.ParseUint(value, 10, 16)
		return &permission{Rule: &rbacv3.Permission_DestinationPort{DestinationPort: uint32(port)}}, err
	}},
	"connection.sni": {one: func(_ *ruleContext, _, value string) (*permission, error) {
		return &permission{Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: matcher.StringMatcher(value)}}, nil
	}},
	metadataKey: {some: dynamicMetadata},
	"hosts": {http: true, one: func(_ *ruleContext, _, value string) (*permission, error) {
		return &permission{Rule: &rbacv3.Permission_Header{Header: matcher.HostMatcher(":authority", value)}}, nil
	}},
	"methods": {http: true, one: func(_ *ruleContext, _, value string) (*permission, error) {
		return &permission{Rule: &rbacv3.Permission_Header{Header: matcher.HeaderMatcher(":method", value)}}, nil
	}},
	"paths": {http: true, one: func(_ *ruleContext, _, value string) (*permission, error) {
		if !istiosecurity.ContainsPathTemplate(value) {
			return &permission{Rule: &rbacv3.Permission_UrlPath{UrlPath: matcher.PathMatcher(value)}}, nil
		}
		return &permission{Rule: &rbacv3.Permission_UriTemplate{UriTemplate: &corev3.TypedExtensionConfig{
			Name: "uri-template", TypedConfig: model.ToAny(matcher.PathTemplateMatcher(value)),
		}}}, checkTemplate(value)
	}},
}

var principalsOf = map[string]attribute[principal]{
	"source.ip": byAddress(func(r *corev3.CidrRange) *principal {
		return &principal{Identifier: &rbacv3.Principal_DirectRemoteIp{DirectRemoteIp: r}}
	}),
	"remote.ip": byAddress(func(r *corev3.CidrRange) *principal {
		return &principal{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: r}}
	}),
	"source.namespace": {one: func(r *ruleContext, _, value string) (*principal, error) {
		return r.peer(matcher.StringMatcherRegex(".*/ns/" + strings.ReplaceAll(value, "*", ".*") + "/.*"))
	}},
	"source.serviceAccount": {one: func(r *ruleContext, _, value string) (*principal, error) {
		namespace, account, ok := strings.Cut(value, "/")
		if !ok {
			namespace, account = r.namespace, value
		}
		return r.peer(matcher.StringMatcherRegex("spiffe://.+/ns/" + regexp.QuoteMeta(namespace) + "/(.+/|)sa/" + regexp.QuoteMeta(account) +
			"(/.+)?"))
	}},
	"source.trustDomain": {one: func(r *ruleContext, _, value string) (*principal, error) {
		return r.peer(matcher.StringMatcherRegex("spiffe://" + strings.ReplaceAll(regexp.QuoteMeta(value), `\*`, "[^/]*") + "/.*"))
	}},
	"source.principal": {ids: true, one: func(r *ruleContext, _, value string) (*principal, error) {
		return r.peer(matcher.StringMatcherWithPrefix(value, "spiffe://"))
	}},
	headersKey: {http: true, one: func(_ *ruleContext, key, value string) (*principal, error) {
		name := strings.TrimPrefix(key, headersKey)
		if !strings.HasPrefix(name, "[") || !strings.HasSuffix(name, "]") {
			return nil, errors.New("it has no name in brackets")
		}
		m := matcher.HeaderMatcher(name[1:len(name)-1], value)
		return &principal{Identifier: &rbacv3.Principal_Header{Header: m}}, nil
	}},
	"request.auth.principal": {http: true, some: func(_ *ruleContext, _ string, values []string) (*principal, error) {
		var any []*principal
		for _, v := range values {
			issuer, subject := tokenOf(v)
			any = append(any, principals.all([]*principal{claim("iss", issuer), claim("sub", subject)}))
		}
		if len(any) == 1 {
			return any[0], nil
		}
		return principals.any(any), nil
	}},
	"request.auth.audiences": {http: true, some: func(_ *ruleContext, _ string, values []string) (*principal, error) {
		return claims(values, "aud"), nil
	}},
	"request.auth.presenter": {http: true, some: func(_ *ruleContext, _ string, values []string) (*principal, error) {
		return claims(values, "azp"), nil
	}},
	claimsKey: {http: true, some: func(_ *ruleContext, key string, values []string) (*principal, error) {
		path, err := claimPath(strings.TrimPrefix(key, claimsKey))
		return claims(values, path...), err
	}},
}

func dynamicMetadata(_ *ruleContext, key string, values []string) (*permission, error) {
	filter, name, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(key, "experimental."), "]"), "[")
	if !ok {
		return nil, errors.New("it has no key in brackets")
	}
	var any []*matcherv3.ValueMatcher
	for _, v := range values {
		if strings.HasPrefix(v, "[") && strings.HasSuffix(v, "]") {
			list := matcher.MetadataListMatcher(filter, []string{name}, matcher.StringMatcher(strings.Trim(v, "[]")), false)
			any = append(any, list.GetValue())
		} else {
			any = append(any, matcher.StringOrMatcher([]string{v}))
		}
	}
	m := matcher.MetadataValueMatcher(filter, name, matcher.OrMatcher(any))
	return &permission{Rule: &rbacv3.Permission_Metadata{Metadata: m}}, nil //nolint:staticcheck // as istiod
}

// peer matches the identity of the peer's certificate.
func (r *ruleContext) peer(m *matcherv3.StringMatcher) (*principal, error) {
	if why := model.RegexProblem(m.GetSafeRegex().GetRegex(), r.largest); why != "" {
		return nil, errors.New(why)
	}
	return &principal{Identifier: &rbacv3.Principal_Authenticated_{
		Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: m},
	}}, nil
}

// tokenOf matches the issuer and the subject of a request principal, ISSUER/SUBJECT. The issuer may have slashes itself.
func tokenOf(value string) (issuer, subject *matcherv3.StringMatcher) {
	some := matcher.StringMatcherRegex(".+")
	i := strings.LastIndexByte(value, '/')
	exact := func(s string) *matcherv3.StringMatcher { return matcher.StringMatcherExact(s, false) }
	switch {
	case value == "*":
		return some, some
	case strings.HasPrefix(value, "*") && i < 0:
		return some, matcher.StringMatcherSuffix(value[1:], false)
	case strings.HasPrefix(value, "*"):
		issuer = some
		if i > 1 {
			issuer = matcher.StringMatcherSuffix(value[1:i], false)
		}
		return issuer, exact(value[i+1:])
	case strings.HasSuffix(value, "*") && i < 0:
		return matcher.StringMatcherPrefix(value[:len(value)-1], false), some
	case strings.HasSuffix(value, "/*"):
		return exact(value[:i]), some
	case strings.HasSuffix(value, "*"):
		return exact(value[:i]), matcher.StringMatcherPrefix(value[i+1:len(value)-1], false)
	case i < 0:
		return exact(value), exact("")
	}
	return exact(value[:i]), exact(value[i+1:])
}

// claims matches a claim, or an element of one that is a list.
func claims(values []string, path ...string) *principal {
	m := matcher.MetadataListValueMatcher(model.TokenFilter, append([]string{model.TokenPayload}, path...),
		matcher.StringOrMatcher(values), true)
	return &principal{Identifier: &rbacv3.Principal_Metadata{Metadata: m}} //nolint:staticcheck // as istiod
}

// claimPath returns the names of nested claims: [a][b], or [name] for a name with brackets.
func claimPath(text string) ([]string, error) {
	if !strings.HasPrefix(text, "[") || !strings.HasSuffix(text, "]") {
		return nil, errors.New("it has no name in brackets")
	}
	names := strings.Split(text[1:len(text)-1], "][")
	for _, n := range names {
		if strings.ContainsAny(n, "[]") {
			return []string{text[1 : len(text)-1]}, nil
		}
	}
	return names, nil
}

// byAddress is an attribute of which the values are addresses, or ranges of them.
func byAddress[M any](of func(*corev3.CidrRange) *M) attribute[M] {
	return attribute[M]{one: func(_ *ruleContext, _, value string) (*M, error) {
		prefix, err := netip.ParsePrefix(value)
		if !strings.Contains(value, "/") {
			var a netip.Addr
			if a, err = netip.ParseAddr(value); a.Zone() != "" {
				err = fmt.Errorf("%s has a zone, which Envoy does not take", value)
			}
			prefix = netip.PrefixFrom(a, a.BitLen())
		}
		if err != nil {
			return nil, err
		}
		return of(&corev3.CidrRange{
			AddressPrefix: prefix.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(max(prefix.Bits(), 0))),
		}), nil
	}}
}

// checkTemplate returns why Envoy would not take a path with {*} and {**}: it refuses the listener, or ends itself.
func checkTemplate(path string) error {
	if !strings.HasPrefix(path, "/") || strings.Contains(path, "//") {
		return errors.New("the path does not begin with a slash, or has an empty part")
	}
	return istiosecurity.CheckValidPathTemplate("paths", []string{path})
}
