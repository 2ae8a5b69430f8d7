package security_test

import (
	"fmt"
	"strings"
	"testing"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"github.com/stretchr/testify/require"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// translatePolicy returns the filters of an AuthorizationPolicy for a client, and the findings.
func translatePolicy(spec *securityv1beta1.AuthorizationPolicy, client model.Profile) *model.Security {
	key := resource.Key{Kind: resource.AuthorizationPolicy, Namespace: "foo", Name: "p"}
	return security.Translate(security.Objects{
		Policies: []*model.AuthorizationPolicy{{Key: key, Spec: spec}}, Config: &model.MeshConfig{}, Client: client,
	})
}

// enforcedRules are the enforced rules of the first filters.
func enforcedRules(t *testing.T, s *model.Security) (http, tcp *rbacv3.RBAC) {
	t.Helper()
	var h rbachttpv3.RBAC
	require.NoError(t, s.HTTP[0].GetTypedConfig().UnmarshalTo(&h))
	var c rbactcpv3.RBAC
	require.NoError(t, s.TCP[0].GetTypedConfig().UnmarshalTo(&c))
	return h.GetRules(), c.GetRules()
}

func operation(o *securityv1beta1.Operation) *securityv1beta1.Rule {
	return &securityv1beta1.Rule{To: []*securityv1beta1.Rule_To{{Operation: o}}}
}

func source(s *securityv1beta1.Source) *securityv1beta1.Rule {
	return &securityv1beta1.Rule{From: []*securityv1beta1.Rule_From{{Source: s}}}
}

func condition(key string, values ...string) *securityv1beta1.Rule {
	return &securityv1beta1.Rule{When: []*securityv1beta1.Condition{{Key: key, Values: values}}}
}

func unknownField() *securityv1beta1.Rule {
	r := operation(&securityv1beta1.Operation{Ports: []string{"1"}})
	r.GetTo()[0].GetOperation().ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 1, 'x'}) // field 1023
	return r
}

// untranslatable are rules with a condition that cannot be translated.
func untranslatable() map[string]*securityv1beta1.Rule {
	long := strings.Repeat("long-name-", 6)
	return map[string]*securityv1beta1.Rule{
		"address":                source(&securityv1beta1.Source{IpBlocks: []string{"10.0.0.1", "10.0.0.300"}}),
		"range":                  source(&securityv1beta1.Source{NotRemoteIpBlocks: []string{"10.0.0.0/33"}}),
		"zone":                   source(&securityv1beta1.Source{IpBlocks: []string{"fe80::1%eth0"}}),
		"port":                   operation(&securityv1beta1.Operation{Ports: []string{"70000"}}),
		"large expression":       source(&securityv1beta1.Source{ServiceAccounts: []string{long + "/" + long}}),
		"template":               operation(&securityv1beta1.Operation{Paths: []string{"/a/{*}b"}}),
		"two templates":          operation(&securityv1beta1.Operation{Paths: []string{"/{**}/a/{*}"}}),
		"empty part":             operation(&securityv1beta1.Operation{Paths: []string{"//{*}"}}),
		"empty part in between":  operation(&securityv1beta1.Operation{Paths: []string{"/a//{*}"}}),
		"empty parts at the end": operation(&securityv1beta1.Operation{Paths: []string{"/{*}//"}}),
		"template without slash": operation(&securityv1beta1.Operation{Paths: []string{"a/{*}"}}),
		"key":                    condition("source.shoes", "1"),
		"header without a name":  condition("request.headers", "1"),
		"header of no name":      condition("request.headers[]", "1"),
		"header that is none":    condition("request.headers[a b\n]", "1"),
		"claim":                  condition("request.auth.claims", "1"),
		"metadata":               condition("experimental.envoy.filters.a", "1"),
		"destination":            condition("destination.ip", "here"),
	}
}

// A rule with an untranslatable condition allows no traffic, and denies at least the traffic that it describes.
func TestUntranslatableRulesDeny(t *testing.T) {
	small := model.Profile{Role: model.Ingress}
	long := strings.Repeat("long-name-", 6)
	for name, rule := range untranslatable() {
		allowed := translatePolicy(&securityv1beta1.AuthorizationPolicy{Rules: []*securityv1beta1.Rule{rule}}, small)
		http, tcp := enforcedRules(t, allowed)
		require.Equal(t, rbacv3.RBAC_ALLOW, http.GetAction(), name)
		require.Empty(t, http.GetPolicies(), name)
		require.Empty(t, tcp.GetPolicies(), name)
		require.NotEmpty(t, allowed.Findings, name)
		require.Equal(t, "spec.rules[0]", allowed.Findings[0].Field, name)
		require.Contains(t, allowed.Findings[0].Why, "the rule allows no traffic", name)

		denied := translatePolicy(&securityv1beta1.AuthorizationPolicy{
			Rules: []*securityv1beta1.Rule{rule}, Action: securityv1beta1.AuthorizationPolicy_DENY,
		}, small)
		http, tcp = enforcedRules(t, denied)
		for _, rules := range []*rbacv3.RBAC{http, tcp} {
			require.Equal(t, rbacv3.RBAC_DENY, rules.GetAction(), name)
			require.Len(t, rules.GetPolicies(), 1, name)
			for _, p := range rules.GetPolicies() {
				require.True(t, isAny(p), "%s: %v", name, p)
				require.Empty(t, model.Refused(p), name)
			}
		}
		require.NotEmpty(t, denied.Findings, name)
	}
	unknown := translatePolicy(&securityv1beta1.AuthorizationPolicy{Rules: []*securityv1beta1.Rule{unknownField()}}, small)
	http, _ := enforcedRules(t, unknown)
	require.Empty(t, http.GetPolicies(), "a condition of a newer version")
	require.NotEmpty(t, unknown.Findings)

	newer := translatePolicy(&securityv1beta1.AuthorizationPolicy{Action: 17}, small)
	http, tcp := enforcedRules(t, newer)
	require.Equal(t, rbacv3.RBAC_DENY, http.GetAction(), "an action of a newer version")
	require.True(t, isAny(http.GetPolicies()["ns[foo]-policy[p]-rule[0]"]))
	require.True(t, isAny(tcp.GetPolicies()["ns[foo]-policy[p]-rule[0]"]))
	require.Len(t, newer.Findings, 1)

	large := small
	large.Large = true
	fits := translatePolicy(&securityv1beta1.AuthorizationPolicy{Rules: []*securityv1beta1.Rule{
		source(&securityv1beta1.Source{ServiceAccounts: []string{long + "/" + long}}),
	}}, large)
	require.Empty(t, fits.Findings, "such an Envoy takes it")
}

// isAny says whether a policy matches everything.
func isAny(p *rbacv3.Policy) bool {
	permission, principal := p.GetPermissions()[0], p.GetPrincipals()[0]
	if combined := permission.GetAndRules().GetRules(); len(combined) == 1 {
		permission = combined[0]
	}
	if combined := principal.GetAndIds().GetIds(); len(combined) == 1 {
		principal = combined[0]
	}
	return permission.GetAny() && principal.GetAny()
}

const custom = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: a, namespace: foo}
spec: {action: CUSTOM, provider: {name: %s}, rules: [{%s}]}
`

// Traffic is denied if its provider cannot decide on it.
func TestUnusableProvidersDeny(t *testing.T) {
	service := "my-custom-ext-authz.foo.svc.cluster.local"
	for name, config := range map[string]*meshv1alpha1.MeshConfig{
		"no config":      nil,
		"no such one":    asks(&httpProvider{Service: service, Port: 9000}),
		"port":           asks(&httpProvider{Service: service, Port: 1}),
		"service":        asks(&httpProvider{Service: "unknown.internal", Port: 9000}),
		"namespace":      asks(&httpProvider{Service: "bar/" + service, Port: 9000}),
		"path":           asks(&httpProvider{Service: service, Port: 9000, PathPrefix: "check"}),
		"status":         asksGRPC(&grpcProvider{Service: service, Port: 9000, StatusOnError: "999"}),
		"word as status": asksGRPC(&grpcProvider{Service: service, Port: 9000, StatusOnError: "no"}),
		"header":         asks(&httpProvider{Service: service, Port: 9000, HeadersToUpstreamOnAllow: []string{"*"}}),
		"body":           asksGRPC(&grpcProvider{Service: service, Port: 9000, IncludeRequestBodyInCheck: &body{}}),
		"added header": asks(&httpProvider{
			Service: service, Port: 9000,
			IncludeAdditionalHeadersInCheck: map[string]string{"a\n": "b"},
		}),
		"several": {ExtensionProviders: append(asks(&httpProvider{Service: service, Port: 9000}).GetExtensionProviders(),
			asksGRPC(&grpcProvider{Service: service, Port: 9000}).GetExtensionProviders()...)},
	} {
		provider := "default"
		if name == "no such one" {
			provider = "another"
		}
		s := securedBy(t, fmt.Sprintf(custom, provider, ""), config)
		http, tcp := enforcedRules(t, s)
		for _, rules := range []*rbacv3.RBAC{http, tcp} {
			require.Equal(t, rbacv3.RBAC_DENY, rules.GetAction(), name)
			require.True(t, isAny(rules.GetPolicies()["istio-ext-authz-"+provider+
				"-ns[foo]-policy[a]-rule[0]-deny-due-to-bad-CUSTOM-action"]), name)
		}
		require.Len(t, s.HTTP, 1, name)
		require.Len(t, s.Findings, 1, name)
		require.Contains(t, s.Findings[0].Why, "traffic that the rules match is denied", name)
	}
}

// A provider of HTTP does not decide on connections: rules that apply to them close them, unless Warn is set. A dry run
// asks no provider.
func TestHTTPProvider_ClosesConnections(t *testing.T) {
	config := asks(&httpProvider{Service: "my-custom-ext-authz.foo.svc.cluster.local", Port: 9000})
	mesh := newMesh(t, fmt.Sprintf(custom, "default", "to: [{operation: {ports: ['9000']}}]"), config)
	s := mesh.Security(workload(), nil)
	require.Len(t, s.HTTP, 2)
	var tcp rbactcpv3.RBAC
	require.NoError(t, s.TCP[0].GetTypedConfig().UnmarshalTo(&tcp))
	require.Equal(t, rbacv3.RBAC_DENY, tcp.GetRules().GetAction())
	require.Len(t, tcp.GetRules().GetPolicies(), 1)
	require.Len(t, s.Findings, 1)
	mesh.Warn = true
	require.Empty(t, mesh.Security(workload(), nil).TCP)

	objects := strings.Replace(fmt.Sprintf(custom, "default", ""), "namespace: foo",
		"namespace: foo, annotations: {istio.io/dry-run: 'true'}", 1)
	dry := securedBy(t, objects, config)
	require.Empty(t, dry.HTTP)
	require.Len(t, dry.Findings, 1)
}

// TestHTTPProvider_UntranslatableRulesCloseConnections: the provider cannot decide on connections, so that a rule that may
// apply to them closes them. A rule, or an alternative of it, about requests does not apply to them.
func TestHTTPProvider_UntranslatableRulesCloseConnections(t *testing.T) {
	config := asks(&httpProvider{Service: "my-custom-ext-authz.foo.svc.cluster.local", Port: 9000})
	rules := untranslatable()
	rules["alternatives"] = &securityv1beta1.Rule{To: []*securityv1beta1.Rule_To{
		{Operation: &securityv1beta1.Operation{Methods: []string{"GET"}}},
		{Operation: &securityv1beta1.Operation{Ports: []string{"9000"}}},
	}}
	rules["field of a newer version"] = unknownField()
	rules["requests only"] = operation(&securityv1beta1.Operation{Methods: []string{"GET"}})
	key := resource.Key{Kind: resource.AuthorizationPolicy, Namespace: "foo", Name: "a"}
	for name, closes := range map[string]bool{
		"address": true, "zone": true, "port": true, "large expression": true, "key": true, "metadata": true,
		"destination": true, "alternatives": true, "field of a newer version": true, "requests only": false,
	} {
		mesh := newMesh(t, "", config)
		policy, err := resource.New(resource.Meta{Key: key}, &securityv1beta1.AuthorizationPolicy{
			Action: securityv1beta1.AuthorizationPolicy_CUSTOM, Rules: []*securityv1beta1.Rule{rules[name]},
			ActionDetail: &securityv1beta1.AuthorizationPolicy_Provider{
				Provider: &securityv1beta1.AuthorizationPolicy_ExtensionProvider{Name: "default"},
			},
		})
		require.NoError(t, err)
		require.NoError(t, mesh.Set(key, policy))
		client := workload()
		client.Large = false
		secured := mesh.Security(client, nil)
		require.Len(t, secured.HTTP, 2, name)
		if !closes {
			require.Empty(t, secured.TCP, name)
			continue
		}
		require.Len(t, secured.TCP, 1, name)
		var tcp rbactcpv3.RBAC
		require.NoError(t, secured.TCP[0].GetTypedConfig().UnmarshalTo(&tcp))
		require.Equal(t, rbacv3.RBAC_DENY, tcp.GetRules().GetAction(), name)
		require.Len(t, tcp.GetRules().GetPolicies(), 1, name)
		for _, finding := range secured.Findings {
			require.NotContains(t, finding.Why, "the rule allows no traffic", name)
		}
	}
}
