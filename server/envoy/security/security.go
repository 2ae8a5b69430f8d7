// Package security translates security objects into Envoy's filters. It is pure. What cannot be translated denies, and a finding says so.
package security

import (
	"maps"
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	securityv1beta1 "istio.io/api/security/v1beta1"
	"istio.io/istio/pilot/pkg/security/trustdomain"

	"tributary/server/envoy/model"
)

// Objects are the security objects that are for the clients of a profile, and what they refer to.
type Objects struct {
	// Those of a namespace stand together, the oldest first.
	Policies []*model.AuthorizationPolicy
	Tokens   []*model.RequestAuthentication
	Peers    []*model.PeerAuthentication

	Config  *model.MeshConfig // with the trust domain and the providers; not nil
	Client  model.Profile
	Cluster func(service string, port uint32) (cluster, why string) // to a service, which may be named as namespace/host, or why there is none
	Warn    bool                                                    // traffic passes although something cannot be enforced
}

// inOrder are the actions of policies that Envoy enforces itself, in istiod's order.
var inOrder = []securityv1beta1.AuthorizationPolicy_Action{
	securityv1beta1.AuthorizationPolicy_AUDIT, securityv1beta1.AuthorizationPolicy_DENY, securityv1beta1.AuthorizationPolicy_ALLOW,
}

// Of returns what the objects ask of listeners. HTTP filters stand in istiod's order: CUSTOM policies, tokens, then AUDIT, DENY and ALLOW.
func Of(all Objects) *model.Security {
	s := &model.Security{}
	byAction := make(map[securityv1beta1.AuthorizationPolicy_Action][]*model.AuthorizationPolicy)
	for _, p := range all.Policies {
		s.Objects = append(s.Objects, p.Key)
		action := p.Spec.GetAction()
		if _, known := securityv1beta1.AuthorizationPolicy_Action_name[int32(action)]; !known {
			s.Findings.Note(model.Place{Of: p.Key, Field: "spec.action"}, "it is unknown: all that the policy selects is denied")
			p, action = denyAll(p), securityv1beta1.AuthorizationPolicy_DENY
		}
		byAction[action] = append(byAction[action], p)
	}
	for _, t := range all.Tokens {
		s.Objects = append(s.Objects, t.Key)
	}
	if all.Config.Spec != nil && len(s.Objects) > 0 {
		s.Objects = append(s.Objects, all.Config.Key)
	}
	domains := trustdomain.Bundle{TrustDomains: all.Config.TrustDomains()}
	b := &builder{domains: domains, largest: all.Client.LargestProgram(), found: &s.Findings}
	http, tcp := b.custom(byAction[securityv1beta1.AuthorizationPolicy_CUSTOM], all)
	s.HTTP, s.TCP = append(s.HTTP, http...), append(s.TCP, tcp...)
	if f := tokenFilter(all, &s.Findings); f != nil {
		s.HTTP = append(s.HTTP, f)
	}
	for i, action := range []rbacv3.RBAC_Action{rbacv3.RBAC_LOG, rbacv3.RBAC_DENY, rbacv3.RBAC_ALLOW} {
		if policies := byAction[inOrder[i]]; len(policies) > 0 {
			http, tcp := b.filters(policies, action)
			s.HTTP, s.TCP = append(s.HTTP, http), append(s.TCP, tcp)
		}
	}
	addPeers(s, all)
	s.Findings = s.Findings.Sorted()
	s.From += fingerprint(s)
	return s
}

func denyAll(p *model.AuthorizationPolicy) *model.AuthorizationPolicy {
	all := *p
	all.Spec = &securityv1beta1.AuthorizationPolicy{Rules: []*securityv1beta1.Rule{{}}}
	return &all
}

// fingerprint has all of what is asked, so that a change of an object that changes nothing is sent to nobody.
func fingerprint(s *model.Security) string {
	var d model.Digest
	model.AddMessages(&d, s.HTTP...)
	model.AddMessages(&d, s.TCP...)
	model.AddMessages(&d, s.TLS)
	d.Text(s.Domains...)
	d.Number(int64(s.Paths))
	d.Number(int64(s.Mutual))
	for _, port := range slices.Sorted(maps.Keys(s.MutualOn)) {
		d.Number(int64(port))
		d.Number(int64(s.MutualOn[port]))
	}
	d.Found(s.Objects, s.Findings)
	return string(d)
}
