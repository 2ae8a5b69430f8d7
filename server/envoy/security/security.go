// Package security translates security objects into Envoy's filters. It is pure. Untranslatable rules deny traffic,
// with a finding.
//
// security.go orders the filters of all policies. rbac.go translates the AuthorizationPolicies of an action, rule.go
// one rule of them, attribute.go its conditions, provider.go external authorizers. peer.go has mutual TLS, token.go and
// keys.go have tokens.
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

// Objects are the security objects for the clients of a profile, with their references.
type Objects struct {
	// Objects of a namespace stand together, the oldest first.
	Policies []*model.AuthorizationPolicy
	Tokens   []*model.RequestAuthentication
	Peers    []*model.PeerAuthentication // of sidecars

	Config *model.MeshConfig // not nil
	Client model.Profile
	// Cluster returns the cluster of a service, which is a host or namespace/host, or the reason for its absence.
	Cluster func(service string, port uint32) (cluster, problem string)
	Warn    bool // lets traffic pass although an object cannot be enforced
}

// Translate returns the filters of listeners. HTTP filters have istiod's order: CUSTOM policies, tokens, then AUDIT,
// DENY and ALLOW.
func Translate(objects Objects) *model.Security {
	result := &model.Security{}
	byAction := make(map[securityv1beta1.AuthorizationPolicy_Action][]*model.AuthorizationPolicy)
	for _, policy := range objects.Policies {
		action := policy.Spec.GetAction()
		if _, valid := securityv1beta1.AuthorizationPolicy_Action_name[int32(action)]; !valid {
			result.Findings.Note(model.PlaceIn(policy.Key, "spec.action"),
				"it is unknown: all traffic that the policy selects is denied")
			action = securityv1beta1.AuthorizationPolicy_DENY
			everything := &securityv1beta1.AuthorizationPolicy{Rules: []*securityv1beta1.Rule{{}}}
			policy = &model.AuthorizationPolicy{Key: policy.Key, DryRun: policy.DryRun, Spec: everything}
		}
		byAction[action] = append(byAction[action], policy)
	}
	result.Objects = slices.Concat(model.KeysOf(objects.Policies), model.KeysOf(objects.Tokens))
	if objects.Config.Spec != nil && len(result.Objects) > 0 {
		result.Objects = append(result.Objects, objects.Config.Key)
	}
	builder := &builder{objects, &result.Findings}
	result.HTTP, result.TCP = builder.customFilters(byAction[securityv1beta1.AuthorizationPolicy_CUSTOM])
	if filter := tokenFilter(objects, &result.Findings); filter != nil {
		result.HTTP = append(result.HTTP, filter)
	}
	for _, translation := range []struct {
		action securityv1beta1.AuthorizationPolicy_Action
		as     rbacv3.RBAC_Action
	}{
		{securityv1beta1.AuthorizationPolicy_AUDIT, rbacv3.RBAC_LOG},
		{securityv1beta1.AuthorizationPolicy_DENY, rbacv3.RBAC_DENY},
		{securityv1beta1.AuthorizationPolicy_ALLOW, rbacv3.RBAC_ALLOW},
	} {
		if policies := byAction[translation.action]; len(policies) > 0 {
			strict := translation.as == rbacv3.RBAC_ALLOW
			result.HTTP = append(result.HTTP, builder.build(policies, ruleContext{strict: strict}, translation.as).httpFilter())
			result.TCP = append(result.TCP, builder.build(policies, ruleContext{strict: strict, tcp: true},
				translation.as).tcpFilter())
		}
	}
	addPeers(result, objects)
	result.Findings = result.Findings.Sorted()
	result.From = fingerprint(result, objects.Peers)
	return result
}

// Deny refuses all requests and connections, since the objects cannot be enforced.
func Deny(objects []resource.Key, reason string) *model.Security {
	refusal := ruleSet{enforced: &rbacv3.RBAC{}}
	result := &model.Security{
		HTTP: []*hcmv3.HttpFilter{refusal.httpFilter()},
		TCP:  []*listenerv3.Filter{refusal.tcpFilter()},
	}
	for _, key := range objects {
		result.Findings.Note(model.Place{Object: key}, "%s: all traffic that it may be about is refused", reason)
	}
	result.From = fingerprint(result, nil)
	return result
}

// fingerprint digests the translation, so that a change without effect on it is not sent to clients.
func fingerprint(result *model.Security, peers []*model.PeerAuthentication) string {
	var digest model.Digest
	model.AddMessages(&digest, result.HTTP...)
	model.AddMessages(&digest, result.TCP...)
	model.AddMessages(&digest, result.TLS)
	digest.Text(fmt.Sprintf("%q %v %v %v %v", result.Domains, result.Paths, result.Mutual, result.MutualByPort,
		result.Plaintext))
	for _, object := range peers {
		digest.Text(object.Version, object.Created.String())
	}
	digest.Findings(result.Objects, result.Findings)
	return string(digest)
}
