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

// attribute makes matchers of a property of requests or connections. M is Permission or Principal. checkValues has
// accepted the keys and values.
type attribute[M any] struct {
	httpOnly    bool                                                 // other connections lack it
	match       func(r *ruleContext, key, value string) *M           // matches a value
	matchValues func(r *ruleContext, key string, values []string) *M // matches any of the values, unless one is set
}

// Keys of conditions that have a name in brackets.
const (
	headersKey  = "request.headers"
	claimsKey   = "request.auth.claims"
	metadataKey = "experimental.envoy.filters."
)

// permissionAttributes and principalAttributes have the attributes by attributeKey of a condition. Fields of operations
// that are no keys of conditions have their own names.
var permissionAttributes = map[string]attribute[permission]{
	"destination.ip": {match: func(_ *ruleContext, _, value string) *permission {
		return &permission{Rule: &rbacv3.Permission_DestinationIp{DestinationIp: addressRange(value)}}
	}},
	"destination.port": {match: func(_ *ruleContext, _, value string) *permission {
		port, _ := strconv.ParseUint(value, 10, 16)
		return &permission{Rule: &rbacv3.Permission_DestinationPort{DestinationPort: uint32(port)}}
	}},
	"connection.sni": {match: func(_ *ruleContext, _, value string) *permission {
		return &permission{Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: matcher.StringMatcher(value)}}
	}},
	metadataKey: {matchValues: dynamicMetadata},
	"hosts": {httpOnly: true, match: func(_ *ruleContext, _, value string) *permission {
		return headerPermission(matcher.HostMatcher(":authority", value))
	}},
	"methods": {httpOnly: true, match: func(_ *ruleContext, _, value string) *permission {
		return headerPermission(matcher.HeaderMatcher(":method", value))
	}},
	"paths": {httpOnly: true, match: func(_ *ruleContext, _, value string) *permission {
		if !istiosecurity.ContainsPathTemplate(value) {
			return &permission{Rule: &rbacv3.Permission_UrlPath{UrlPath: matcher.PathMatcher(value)}}
		}
		return &permission{Rule: &rbacv3.Permission_UriTemplate{UriTemplate: &corev3.TypedExtensionConfig{
			Name: "uri-template", TypedConfig: model.ToAny(matcher.PathTemplateMatcher(value)),
		}}}
	}},
}

var principalAttributes = map[string]attribute[principal]{
	"source.ip": {match: func(_ *ruleContext, _, value string) *principal {
		return &principal{Identifier: &rbacv3.Principal_DirectRemoteIp{DirectRemoteIp: addressRange(value)}}
	}},
	"remote.ip": {match: func(_ *ruleContext, _, value string) *principal {
		return &principal{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: addressRange(value)}}
	}},
	"source.namespace": {match: func(_ *ruleContext, _, value string) *principal {
		return peerPrincipal(matcher.StringMatcherRegex(".*/ns/" + wildcardRegex(value, ".*") + "/.*"))
	}},
	"source.serviceAccount": {match: func(r *ruleContext, _, value string) *principal {
		namespace, account, ok := strings.Cut(value, "/")
		if !ok {
			namespace, account = r.place.Object.Namespace, value
		}
		return peerPrincipal(matcher.StringMatcherRegex("spiffe://.+/ns/" + regexp.QuoteMeta(namespace) + "/(.+/|)sa/" +
			regexp.QuoteMeta(account) +
			"(/.+)?"))
	}},
	"source.trustDomain": {matchValues: func(r *ruleContext, _ string, values []string) *principal {
		var peers []*principal
		domains := trustdomain.Bundle{TrustDomains: r.Config.TrustDomains()}
		for _, domain := range domains.ExpandTrustDomainAliases(values) {
			peers = append(peers, peerPrincipal(trustDomainMatcher(domain)))
		}
		return anyPrincipal(peers)
	}},
	"source.principal": {matchValues: func(r *ruleContext, _ string, values []string) *principal {
		var alternatives []*principal
		domains := trustdomain.Bundle{TrustDomains: r.Config.TrustDomains()}
		for _, value := range domains.ReplaceTrustDomainAliases(values) {
			alternatives = append(alternatives, peerPrincipal(matcher.StringMatcherWithPrefix(value, "spiffe://")))
		}
		return anyPrincipal(alternatives)
	}},
	headersKey: {httpOnly: true, match: func(_ *ruleContext, key, value string) *principal {
		return &principal{Identifier: &rbacv3.Principal_Header{Header: matcher.HeaderMatcher(bracketName(key), value)}}
	}},
	"request.auth.principal": {httpOnly: true, matchValues: func(_ *ruleContext, _ string, values []string) *principal {
		var alternatives []*principal
		for _, value := range values {
			issuer, subject := requestPrincipal(value)
			alternatives = append(alternatives, allPrincipals([]*principal{textClaim("iss", issuer), textClaim("sub", subject)}))
		}
		if len(alternatives) == 1 {
			return alternatives[0]
		}
		return anyPrincipal(alternatives)
	}},
	"request.auth.audiences": {
		httpOnly:    true,
		matchValues: func(_ *ruleContext, _ string, values []string) *principal { return claimPrincipal(values, "aud") },
	},
	"request.auth.presenter": {
		httpOnly:    true,
		matchValues: func(_ *ruleContext, _ string, values []string) *principal { return claimPrincipal(values, "azp") },
	},
	claimsKey: {httpOnly: true, matchValues: func(_ *ruleContext, key string, values []string) *principal {
		names := strings.Split(bracketName(key), "][") // of nested claims, unless they have brackets themselves
		if strings.ContainsAny(strings.Join(names, ""), "[]") {
			names = []string{bracketName(key)}
		}
		return claimPrincipal(values, names...)
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

// checkValues returns an error for values that have no meaning, or that Envoy would reject the listener for or crash
// on.
func checkValues(key string, values []string) error {
	for _, value := range values {
		switch {
		case strings.HasSuffix(key, ".ip") && strings.Contains(value, "%"):
			return fmt.Errorf("%s has a zone, which Envoy does not take", value)
		case key == "paths" && istiosecurity.ContainsPathTemplate(value) &&
			(!strings.HasPrefix(value, "/") || strings.Contains(value, "//")):
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

// bracketName returns the name in the brackets of a key.
func bracketName(key string) string {
	_, name, _ := strings.Cut(key, "[")
	return strings.TrimSuffix(name, "]")
}

func headerPermission(matcher *routev3.HeaderMatcher) *permission {
	return &permission{Rule: &rbacv3.Permission_Header{Header: matcher}}
}

// peerPrincipal matches the identity in the peer's certificate.
func peerPrincipal(name *matcherv3.StringMatcher) *principal {
	return &principal{Identifier: &rbacv3.Principal_Authenticated_{
		Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: name},
	}}
}

// addressRange returns a range of addresses, or one address as a range.
func addressRange(text string) *corev3.CidrRange {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		address, _ := netip.ParseAddr(text)
		prefix = netip.PrefixFrom(address, address.BitLen())
	}
	return &corev3.CidrRange{
		AddressPrefix: prefix.Addr().String(),
		PrefixLen:     wrapperspb.UInt32(uint32(max(prefix.Bits(), 0))),
	}
}

func dynamicMetadata(_ *ruleContext, key string, values []string) *permission {
	filter, _, _ := strings.Cut(strings.TrimPrefix(key, "experimental."), "[")
	var alternatives []*matcherv3.ValueMatcher
	for _, value := range values {
		if strings.HasPrefix(value, "[") && strings.HasSuffix(value, "]") {
			list := matcher.MetadataListMatcher(filter, nil, matcher.StringMatcher(strings.Trim(value, "[]")), false)
			alternatives = append(alternatives, list.GetValue())
		} else {
			alternatives = append(alternatives, matcher.StringOrMatcher([]string{value}))
		}
	}
	metadata := matcher.MetadataValueMatcher(filter, bracketName(key), matcher.OrMatcher(alternatives))
	return &permission{Rule: &rbacv3.Permission_Metadata{Metadata: metadata}} //nolint:staticcheck // as istiod
}

// requestPrincipal matches the issuer and the subject of a request principal, ISSUER/SUBJECT. The issuer may have
// slashes itself.
func requestPrincipal(value string) (issuer, subject *matcherv3.StringMatcher) {
	exact := func(text string) *matcherv3.StringMatcher { return matcher.StringMatcherExact(text, false) }
	slash := strings.LastIndexByte(value, '/')
	switch {
	case slash < 0 && strings.HasPrefix(value, "*"):
		return matcher.StringMatcher("*"), matcher.StringMatcher(value)
	case slash < 0 && strings.HasSuffix(value, "*"):
		return matcher.StringMatcher(value), matcher.StringMatcher("*")
	case slash < 0:
		return exact(value), exact("")
	case strings.HasPrefix(value, "*"):
		return matcher.StringMatcher(value[:slash]), exact(value[slash+1:])
	case strings.HasSuffix(value, "*"):
		return exact(value[:slash]), matcher.StringMatcher(value[slash+1:])
	}
	return exact(value[:slash]), exact(value[slash+1:])
}

// claimPrincipal matches a claim, or an element of a list.
func claimPrincipal(values []string, path ...string) *principal {
	return tokenPrincipal(matcher.MetadataListValueMatcher(model.TokenFilter,
		append([]string{model.TokenPayload}, path...),
		matcher.StringOrMatcher(values), true))
}

// textClaim matches the string of a claim.
func textClaim(name string, value *matcherv3.StringMatcher) *principal {
	metadata := matcher.MetadataListMatcher(model.TokenFilter, []string{model.TokenPayload, name}, nil, false)
	metadata.Value = &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: value}}
	return tokenPrincipal(metadata)
}

func tokenPrincipal(metadata *matcherv3.MetadataMatcher) *principal {
	return &principal{Identifier: &rbacv3.Principal_Metadata{Metadata: metadata}} //nolint:staticcheck // as istiod
}
