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
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"istio.io/istio/pilot/pkg/security/authz/matcher"
	"istio.io/istio/pilot/pkg/security/trustdomain"
	istiosecurity "istio.io/istio/pkg/config/security"

	"tributary/server/envoy/model"
)

// attribute is a property of requests or connections that a rule has conditions on, and M what matches it: a Permission or a Principal.
// Values and keys have passed checkValues.
type attribute[M any] struct {
	http bool                                                 // connections that are not HTTP do not have it
	one  func(r *ruleContext, key, value string) *M           // matches a value
	some func(r *ruleContext, key string, values []string) *M // matches any of the values, unless one is set
}

// Keys of conditions that have a name in brackets.
const (
	headersKey  = "request.headers"
	claimsKey   = "request.auth.claims"
	metadataKey = "experimental.envoy.filters."
)

// permissionsOf and principalsOf have the attributes by their keys in conditions, without what stands in brackets, and by the names of the
// fields of operations that are no such keys.
var permissionsOf = map[string]attribute[permission]{
	"destination.ip": {one: func(_ *ruleContext, _, value string) *permission {
		return &permission{Rule: &rbacv3.Permission_DestinationIp{DestinationIp: rangeOf(value)}}
	}},
	"destination.port": {one: func(_ *ruleContext, _, value string) *permission {
		port, _ := strconv.ParseUint(value, 10, 16)
		return &permission{Rule: &rbacv3.Permission_DestinationPort{DestinationPort: uint32(port)}}
	}},
	"connection.sni": {one: func(_ *ruleContext, _, value string) *permission {
		return &permission{Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: matcher.StringMatcher(value)}}
	}},
	metadataKey: {some: dynamicMetadata},
	"hosts": {http: true, one: func(_ *ruleContext, _, value string) *permission {
		return ofHeader(matcher.HostMatcher(":authority", value))
	}},
	"methods": {http: true, one: func(_ *ruleContext, _, value string) *permission {
		return ofHeader(matcher.HeaderMatcher(":method", value))
	}},
	"paths": {http: true, one: func(_ *ruleContext, _, value string) *permission {
		if !istiosecurity.ContainsPathTemplate(value) {
			return &permission{Rule: &rbacv3.Permission_UrlPath{UrlPath: matcher.PathMatcher(value)}}
		}
		return &permission{Rule: &rbacv3.Permission_UriTemplate{UriTemplate: &corev3.TypedExtensionConfig{
			Name: "uri-template", TypedConfig: model.ToAny(matcher.PathTemplateMatcher(value)),
		}}}
	}},
}

var principalsOf = map[string]attribute[principal]{
	"source.ip": {one: func(_ *ruleContext, _, value string) *principal {
		return &principal{Identifier: &rbacv3.Principal_DirectRemoteIp{DirectRemoteIp: rangeOf(value)}}
	}},
	"remote.ip": {one: func(_ *ruleContext, _, value string) *principal {
		return &principal{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: rangeOf(value)}}
	}},
	"source.namespace": {one: func(_ *ruleContext, _, value string) *principal {
		return ofPeer(matcher.StringMatcherRegex(".*/ns/" + wildcardRegex(value, ".*") + "/.*"))
	}},
	"source.serviceAccount": {one: func(r *ruleContext, _, value string) *principal {
		namespace, account, ok := strings.Cut(value, "/")
		if !ok {
			namespace, account = r.at.Object.Namespace, value
		}
		return ofPeer(matcher.StringMatcherRegex("spiffe://.+/ns/" + regexp.QuoteMeta(namespace) + "/(.+/|)sa/" + regexp.QuoteMeta(account) +
			"(/.+)?"))
	}},
	"source.trustDomain": {some: func(r *ruleContext, _ string, values []string) *principal {
		var peers []*principal
		domains := trustdomain.Bundle{TrustDomains: r.Config.TrustDomains()}
		for _, domain := range domains.ExpandTrustDomainAliases(values) {
			peers = append(peers, ofPeer(trustDomainMatcher(domain)))
		}
		return anyPrincipal(peers)
	}},
	"source.principal": {some: func(r *ruleContext, _ string, values []string) *principal {
		var any []*principal
		domains := trustdomain.Bundle{TrustDomains: r.Config.TrustDomains()}
		for _, v := range domains.ReplaceTrustDomainAliases(values) {
			any = append(any, ofPeer(matcher.StringMatcherWithPrefix(v, "spiffe://")))
		}
		return anyPrincipal(any)
	}},
	headersKey: {http: true, one: func(_ *ruleContext, key, value string) *principal {
		return &principal{Identifier: &rbacv3.Principal_Header{Header: matcher.HeaderMatcher(inBrackets(key), value)}}
	}},
	"request.auth.principal": {http: true, some: func(_ *ruleContext, _ string, values []string) *principal {
		var any []*principal
		for _, v := range values {
			issuer, subject := tokenOf(v)
			any = append(any, allPrincipals([]*principal{claim("iss", issuer), claim("sub", subject)}))
		}
		if len(any) == 1 {
			return any[0]
		}
		return anyPrincipal(any)
	}},
	"request.auth.audiences": {http: true, some: func(_ *ruleContext, _ string, values []string) *principal { return claims(values, "aud") }},
	"request.auth.presenter": {http: true, some: func(_ *ruleContext, _ string, values []string) *principal { return claims(values, "azp") }},
	claimsKey: {http: true, some: func(_ *ruleContext, key string, values []string) *principal {
		names := strings.Split(inBrackets(key), "][") // of nested claims, unless they have brackets themselves
		if strings.ContainsAny(strings.Join(names, ""), "[]") {
			names = []string{inBrackets(key)}
		}
		return claims(values, names...)
	}},
}

func trustDomainMatcher(domain string) *matcherv3.StringMatcher {
	switch {
	case domain == "*":
		return matcher.StringMatcherPrefix("spiffe://", false)
	case !strings.Contains(domain, "*"):
		return matcher.StringMatcherPrefix("spiffe://"+domain+"/", false)
	}
	return matcher.StringMatcherRegex("spiffe://" + wildcardRegex(domain, "[^/]*") + "/.*")
}

// wildcardRegex returns the regular expression of a pattern with "*" for anything.
func wildcardRegex(pattern, anything string) string {
	return strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, anything)
}

// checkValues says why a condition is not understood, or what Envoy would refuse the listener for, or end itself.
func checkValues(key string, values []string) error {
	for _, v := range values {
		switch {
		case strings.HasSuffix(key, ".ip") && strings.Contains(v, "%"):
			return fmt.Errorf("%s has a zone, which Envoy does not take", v)
		case key == "paths" && istiosecurity.ContainsPathTemplate(v) && (!strings.HasPrefix(v, "/") || strings.Contains(v, "//")):
			return errors.New("the path does not begin with a slash, or has an empty part")
		}
	}
	switch key {
	case "hosts", "methods", "source.trustDomain":
		return nil
	case "paths":
		return istiosecurity.CheckValidPathTemplate(key, values)
	}
	return istiosecurity.ValidateAttribute(key, values)
}

// inBrackets returns the name that a key has in brackets.
func inBrackets(key string) string {
	_, name, _ := strings.Cut(key, "[")
	return strings.TrimSuffix(name, "]")
}

func ofHeader(m *routev3.HeaderMatcher) *permission {
	return &permission{Rule: &rbacv3.Permission_Header{Header: m}}
}

// ofPeer matches the identity of the peer's certificate.
func ofPeer(m *matcherv3.StringMatcher) *principal {
	return &principal{Identifier: &rbacv3.Principal_Authenticated_{Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: m}}}
}

// rangeOf returns a range of addresses, or one address as a range.
func rangeOf(text string) *corev3.CidrRange {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		a, _ := netip.ParseAddr(text)
		prefix = netip.PrefixFrom(a, a.BitLen())
	}
	return &corev3.CidrRange{AddressPrefix: prefix.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(max(prefix.Bits(), 0)))}
}

func dynamicMetadata(_ *ruleContext, key string, values []string) *permission {
	filter, _, _ := strings.Cut(strings.TrimPrefix(key, "experimental."), "[")
	var any []*matcherv3.ValueMatcher
	for _, v := range values {
		if strings.HasPrefix(v, "[") && strings.HasSuffix(v, "]") {
			list := matcher.MetadataListMatcher(filter, nil, matcher.StringMatcher(strings.Trim(v, "[]")), false)
			any = append(any, list.GetValue())
		} else {
			any = append(any, matcher.StringOrMatcher([]string{v}))
		}
	}
	m := matcher.MetadataValueMatcher(filter, inBrackets(key), matcher.OrMatcher(any))
	return &permission{Rule: &rbacv3.Permission_Metadata{Metadata: m}} //nolint:staticcheck // as istiod
}

// tokenOf matches the issuer and the subject of a request principal, ISSUER/SUBJECT. The issuer may have slashes itself.
func tokenOf(value string) (issuer, subject *matcherv3.StringMatcher) {
	exact := func(s string) *matcherv3.StringMatcher { return matcher.StringMatcherExact(s, false) }
	i := strings.LastIndexByte(value, '/')
	switch {
	case i < 0 && strings.HasPrefix(value, "*"):
		return matcher.StringMatcher("*"), matcher.StringMatcher(value)
	case i < 0 && strings.HasSuffix(value, "*"):
		return matcher.StringMatcher(value), matcher.StringMatcher("*")
	case i < 0:
		return exact(value), exact("")
	case strings.HasPrefix(value, "*"):
		return matcher.StringMatcher(value[:i]), exact(value[i+1:])
	case strings.HasSuffix(value, "*"):
		return exact(value[:i]), matcher.StringMatcher(value[i+1:])
	}
	return exact(value[:i]), exact(value[i+1:])
}

// claims matches a claim, or an element of one that is a list.
func claims(values []string, path ...string) *principal {
	return ofToken(matcher.MetadataListValueMatcher(model.TokenFilter, append([]string{model.TokenPayload}, path...),
		matcher.StringOrMatcher(values), true))
}

// claim matches a claim that is a text.
func claim(name string, m *matcherv3.StringMatcher) *principal {
	of := matcher.MetadataListMatcher(model.TokenFilter, []string{model.TokenPayload, name}, nil, false)
	of.Value = &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: m}}
	return ofToken(of)
}

func ofToken(m *matcherv3.MetadataMatcher) *principal {
	return &principal{Identifier: &rbacv3.Principal_Metadata{Metadata: m}} //nolint:staticcheck // as istiod
}
