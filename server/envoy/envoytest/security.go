package envoytest

import (
	securityv1beta1 "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"
)

func (m *Mesh) selector() *typev1beta1.WorkloadSelector {
	if m.one(2) {
		return nil
	}
	return &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": m.pick("one", "two")}}
}

// authorization makes an AuthorizationPolicy. Its provider may be there.
func (m *Mesh) authorization() *securityv1beta1.AuthorizationPolicy {
	policy := &securityv1beta1.AuthorizationPolicy{
		Selector: m.selector(), Action: securityv1beta1.AuthorizationPolicy_Action(m.rand.IntN(4)),
		//nolint:gosec // there are four
	}
	if policy.GetAction() == securityv1beta1.AuthorizationPolicy_CUSTOM {
		policy.ActionDetail = &securityv1beta1.AuthorizationPolicy_Provider{
			Provider: &securityv1beta1.AuthorizationPolicy_ExtensionProvider{Name: m.pick("asked", "nobody")},
		}
	}
	for range 1 + m.rand.IntN(2) {
		rule := &securityv1beta1.Rule{}
		if m.one(2) {
			rule.To = []*securityv1beta1.Rule_To{{Operation: &securityv1beta1.Operation{
				Paths: []string{m.pick("/a", "/a/*", "/{*}/a", "*")}, NotHosts: []string{m.pick("one.internal", "*.internal")},
			}}}
		}
		if m.one(2) {
			rule.From = []*securityv1beta1.Rule_From{{Source: &securityv1beta1.Source{
				IpBlocks: []string{"10.0.0.0/8"}, ServiceAccounts: []string{m.pick("a", "shop/a",
					"shop/a-rather-long-name-of-an-account")},
				NotRequestPrincipals: []string{m.pick("*", "i/*")},
			}}}
		}
		if m.one(2) {
			rule.When = []*securityv1beta1.Condition{{
				Key: m.pick("source.namespace", "request.auth.claims[a][b]", "request.headers[x-a]"), Values: []string{"a*"},
			}}
		}
		policy.Rules = append(policy.Rules, rule)
	}
	return policy
}

// tokens makes a RequestAuthentication. The service of its keys may be there.
func (m *Mesh) tokens() *securityv1beta1.RequestAuthentication {
	jwtRule := &securityv1beta1.JWTRule{
		Issuer: m.pick("i", "j"), ForwardOriginalToken: m.one(2),
		FromHeaders: []*securityv1beta1.JWTHeader{{Name: "x-token"}},
	}
	switch m.rand.IntN(3) {
	case 0:
		jwtRule.Jwks = `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`
	case 1:
		jwtRule.JwksUri = "http://" + m.pick("one.internal", "three.internal", "nobody.internal") + "/keys"
	}
	return &securityv1beta1.RequestAuthentication{Selector: m.selector(), JwtRules: []*securityv1beta1.JWTRule{jwtRule}}
}
