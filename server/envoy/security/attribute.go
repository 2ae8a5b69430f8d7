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

// Keys of conditions that have a name in brackets.
const (
	headersKey  = "request.headers"
	claimsKey   = "request.auth.claims"
	metadataKey = "experimental.envoy.filters."
)

// permissionKeys and principalKeys have the attributes by attributeKey of a condition. They are true for those that
// other connections than HTTP lack. Fields of operations that are no keys of conditions have their own names.
var permissionKeys = map[string]bool{
	"destination.ip": false, "destination.port": false, "connection.sni": false, metadataKey: false,
	"hosts": true, "methods": true, "paths": true,
}

var principalKeys = map[string]bool{
	"source.ip": false, "remote.ip": false, "source.namespace": false, "source.serviceAccount": false,
	"source.trustDomain": false, "source.principal": false, headersKey: true, "request.auth.principal": true,
	"request.auth.audiences": true, "request.auth.presenter": true, claimsKey: true,
}

// matchPermission matches a value. checkValues has accepted the key and the value.
func matchPermission(_ *ruleContext, key, value string) *permission {
	switch attributeKey(key) {
	case "destination.ip":
		return &permission{Rule: &rbacv3.Permission_DestinationIp{DestinationIp: addressRange(value)}}
	case "destination.port":
		port, _ := strconv.ParseUint(value, 10, 16)
		return &permission{Rule: &rbacv3.Permission_DestinationPort{DestinationPort: uint32(port)}}
	case "connection.sni":
		return &permission{Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: matcher.StringMatcher(value)}}
	case "hosts":
		return headerPermission(matcher.HostMatcher(":authority", value))
	case "methods":
		return headerPermission(matcher.HeaderMatcher(":method", value))
	}
	if !istiosecurity.ContainsPathTemplate(value) {
		return &permission{Rule: &rbacv3.Permission_UrlPath{UrlPath: matcher.PathMatcher(value)}}
	}
	return &permission{Rule: &rbacv3.Permission_UriTemplate{UriTemplate: &corev3.TypedExtensionConfig{
		Name: "uri-template", TypedConfig: model.ToAny(matcher.PathTemplateMatcher(value)),
	}}}
}

// matchPermissions matches any of the values, or returns nil for an attribute whose values are matched one by one.
func matchPermissions(_ *ruleContext, key string, values []string) *permission {
	if attributeKey(key) == metadataKey {
		return dynamicMetadata(key, values)
	}
	return nil
}

// matchPrincipal is matchPermission for principals.
func matchPrincipal(rule *ruleContext, key, value string) *principal {
	switch attributeKey(key) {
	case "source.ip":
		return &principal{Identifier: &rbacv3.Principal_DirectRemoteIp{DirectRemoteIp: addressRange(value)}}
	case "remote.ip":
		return &principal{Identifier: &rbacv3.Principal_RemoteIp{RemoteIp: addressRange(value)}}
	case "source.namespace":
		return peerPrincipal(matcher.StringMatcherRegex(".*/ns/" + wildcardRegex(value, ".*") + "/.*"))
	case "source.serviceAccount":
		namespace, account, ok := strings.Cut(value, "/")
		if !ok {
			namespace, account = rule.place.Object.Namespace, value
		}
		return peerPrincipal(matcher.StringMatcherRegex("spiffe://.+/ns/" + regexp.QuoteMeta(namespace) + "/(.+/|)sa/" +
			regexp.QuoteMeta(account) + "(/.+)?"))
	}
	return &principal{Identifier: &rbacv3.Principal_Header{Header: matcher.HeaderMatcher(bracketName(key), value)}}
}

// matchPrincipals is matchPermissions for principals.
func matchPrincipals(r *ruleContext, key string, values []string) *principal {
	domains := trustdomain.Bundle{TrustDomains: r.Config.TrustDomains()}
	var alternatives []*principal
	switch attributeKey(key) {
	case "source.trustDomain":
		for _, domain := range domains.ExpandTrustDomainAliases(values) {
			alternatives = append(alternatives, peerPrincipal(trustDomainMatcher(domain)))
		}
	case "source.principal":
		for _, value := range domains.ReplaceTrustDomainAliases(values) {
			alternatives = append(alternatives, peerPrincipal(matcher.StringMatcherWithPrefix(value, "spiffe://")))
		}
	case "request.auth.principal":
		for _, value := range values {
			issuer, subject := requestPrincipal(value)
			alternatives = append(alternatives, allPrincipals([]*principal{textClaim("iss", issuer), textClaim("sub", subject)}))
		}
		if len(alternatives) == 1 {
			return alternatives[0]
		}
	case "request.auth.audiences":
		return claimPrincipal(values, "aud")
	case "request.auth.presenter":
		return claimPrincipal(values, "azp")
	case claimsKey:
		names := strings.Split(bracketName(key), "][") // of nested claims, unless they have brackets themselves
		if strings.ContainsAny(strings.Join(names, ""), "[]") {
			names = []string{bracketName(key)}
		}
		return claimPrincipal(values, names...)
	default:
		return nil
	}
	return anyPrincipal(alternatives)
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

func dynamicMetadata(key string, values []string) *permission {
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
