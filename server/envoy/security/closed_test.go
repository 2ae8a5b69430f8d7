package security_test

import (
	"testing"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"github.com/stretchr/testify/require"
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

func unknownField() *securityv1beta1.Rule {
	r := &securityv1beta1.Rule{To: []*securityv1beta1.Rule_To{{Operation: &securityv1beta1.Operation{Ports: []string{"1"}}}}}
	r.GetTo()[0].GetOperation().ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 1, 'x'}) // field 1023
	return r
}

// A rule or an action of a newer version allows no traffic.
func TestNewerPoliciesDeny(t *testing.T) {
	small := model.Profile{Role: model.Ingress}
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

// A provider of HTTP cannot decide on connections, so that a rule of a newer version, which may apply to them, closes them.
func TestHTTPProvider_NewerRuleClosesConnections(t *testing.T) {
	key := resource.Key{Kind: resource.AuthorizationPolicy, Namespace: "foo", Name: "a"}
	mesh := newMesh(t, "", meshConfigs(t)["http/custom-http-provider"])
	policy, err := resource.New(resource.Meta{Key: key}, &securityv1beta1.AuthorizationPolicy{
		Action: securityv1beta1.AuthorizationPolicy_CUSTOM, Rules: []*securityv1beta1.Rule{unknownField()},
		ActionDetail: &securityv1beta1.AuthorizationPolicy_Provider{
			Provider: &securityv1beta1.AuthorizationPolicy_ExtensionProvider{Name: "default"},
		},
	})
	require.NoError(t, err)
	require.NoError(t, mesh.Set(key, policy))
	secured := mesh.Security(workload(), nil)
	require.Len(t, secured.HTTP, 2)
	_, tcp := enforcedRules(t, secured)
	require.Equal(t, rbacv3.RBAC_DENY, tcp.GetAction())
	require.Len(t, tcp.GetPolicies(), 1)
	for _, finding := range secured.Findings {
		require.NotContains(t, finding.Why, "the rule allows no traffic")
	}
}
