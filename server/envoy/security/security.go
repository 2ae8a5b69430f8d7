// Package security translates security objects into Envoy's filters. It is pure. What cannot be translated denies, and a finding says so.
package security

import (
	"fmt"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// Objects are the security objects that are for the clients of a profile, and what they refer to.
type Objects struct {
	// Those of a namespace stand together, the oldest first.
	Policies []*model.AuthorizationPolicy
	Tokens   []*model.RequestAuthentication
	Peers    []*model.PeerAuthentication // of sidecars

	Config  *model.MeshConfig // with the trust domain and the providers; not nil
	Client  model.Profile
	Cluster func(service string, port uint32) (cluster, why string) // to a service, which may be named as namespace/host, or why there is none
	Warn    bool                                                    // traffic passes although something cannot be enforced
}

// Of returns what the objects ask of listeners. HTTP filters stand in istiod's order: CUSTOM policies, tokens, then AUDIT, DENY and ALLOW.
func Of(all Objects) *model.Security {
	s := &model.Security{}
	byAction := make(map[securityv1beta1.AuthorizationPolicy_Action][]*model.AuthorizationPolicy)
	for _, p := range all.Policies {
		action := p.Spec.GetAction()
		if _, known := securityv1beta1.AuthorizationPolicy_Action_name[int32(action)]; !known {
			s.Findings.Note(model.Place{Object: p.Key, Field: "spec.action"},
				"it is unknown: all that the policy selects is denied")
			action = securityv1beta1.AuthorizationPolicy_DENY
			everything := &securityv1beta1.AuthorizationPolicy{Rules: []*securityv1beta1.Rule{{}}}
			p = &model.AuthorizationPolicy{Key: p.Key, DryRun: p.DryRun, Spec: everything}
		}
		byAction[action] = append(byAction[action], p)
	}
	s.Objects = slices.Concat(model.KeysOf(all.Policies), model.KeysOf(all.Tokens))
	if all.Config.Spec != nil && len(s.Objects) > 0 {
		s.Objects = append(s.Objects, all.Config.Key)
	}
	b := &builder{all, &s.Findings}
	s.HTTP, s.TCP = b.custom(byAction[securityv1beta1.AuthorizationPolicy_CUSTOM])
	if f := tokenFilter(all, &s.Findings); f != nil {
		s.HTTP = append(s.HTTP, f)
	}
	for _, of := range []struct {
		action securityv1beta1.AuthorizationPolicy_Action
		as     rbacv3.RBAC_Action
	}{
		{securityv1beta1.AuthorizationPolicy_AUDIT, rbacv3.RBAC_LOG},
		{securityv1beta1.AuthorizationPolicy_DENY, rbacv3.RBAC_DENY},
		{securityv1beta1.AuthorizationPolicy_ALLOW, rbacv3.RBAC_ALLOW},
	} {
		if policies := byAction[of.action]; len(policies) > 0 {
			strict := of.as == rbacv3.RBAC_ALLOW
			s.HTTP = append(s.HTTP, b.build(policies, ruleContext{strict: strict}, of.as).http())
			s.TCP = append(s.TCP, b.build(policies, ruleContext{strict: strict, tcp: true}, of.as).tcp())
		}
	}
	addPeers(s, all)
	s.Findings = s.Findings.Sorted()
	s.From = fingerprint(s, all.Peers)
	return s
}

// Deny refuses all requests and connections, since objects cannot be enforced, and says why.
func Deny(objects []resource.Key, why string) *model.Security {
	all := rules{enforced: &rbacv3.RBAC{}}
	s := &model.Security{HTTP: []*hcmv3.HttpFilter{all.http()}, TCP: []*listenerv3.Filter{all.tcp()}}
	for _, key := range objects {
		s.Findings.Note(model.Place{Object: key}, "%s: all traffic that it may be about is refused", why)
	}
	s.From = fingerprint(s, nil)
	return s
}

// fingerprint has all of what is asked, so that a change of an object that changes nothing is sent to nobody.
func fingerprint(s *model.Security, peers []*model.PeerAuthentication) string {
	var d model.Digest
	model.AddMessages(&d, s.HTTP...)
	model.AddMessages(&d, s.TCP...)
	model.AddMessages(&d, s.TLS)
	d.Text(fmt.Sprintf("%q %v %v %v %v", s.Domains, s.Paths, s.Mutual, s.MutualByPort, s.Plaintext))
	for _, o := range peers {
		d.Text(o.Version, o.Created.String())
	}
	d.Findings(s.Objects, s.Findings)
	return string(d)
}
