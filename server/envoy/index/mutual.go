package index

import (
	"slices"

	securityv1beta1 "istio.io/api/security/v1beta1"

	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// mutual returns how clients of a profile authenticate a service, or nil if they do not, or have no identity. As with istiod, only
// PeerAuthentications of a whole namespace or of the mesh keep clients from trying; those of workloads concern these.
func (m *Mesh) mutual(s *model.Service, policy *model.Policy, p model.Profile) *model.Mutual {
	if p.Identity == "" {
		return nil
	}
	peers := make(objects[*securityv1beta1.PeerAuthentication])
	for _, namespace := range []string{s.Namespace, model.RootNamespace} {
		peers[namespace] = slices.Clone(m.peers[namespace]) // it changes
	}
	modes := func(namespace string, labels map[string]string) (model.MutualTLS, map[uint32]model.MutualTLS) {
		return security.Compose(peers.selecting(namespace, func(o *model.PeerAuthentication) bool {
			return model.SelectsLabels(o.Spec.GetSelector().GetMatchLabels(), labels)
		}))
	}
	config := m.config()
	mode, _ := modes(s.Namespace, nil)
	auto := config.AutoMutual() && !s.External && mode != model.Disabled
	if !auto && !WantsMutual(policy) {
		return nil
	}
	var from model.Digest
	from.Flag(auto)
	for _, o := range peers.selecting(s.Namespace, func(*model.PeerAuthentication) bool { return true }) {
		from.Object(o.Key)
		from.Text(o.Version, o.Created.String())
	}
	return &model.Mutual{Auto: auto, From: string(from), Accepts: func(e *model.Endpoint, port uint32) bool {
		mode, on := modes(e.Namespace, e.Labels)
		if of, is := on[port]; is {
			mode = of
		}
		return mode != model.Disabled
	}}
}

// WantsMutual says whether a policy requires mutual TLS with certificates of the mesh somewhere.
func WantsMutual(p *model.Policy) bool {
	return slices.ContainsFunc(slices.Collect(trafficPolicies(p)), func(t trafficPolicy) bool { return model.IsMutual(t.GetTls()) })
}

// touchMutual touches the services whose endpoints PeerAuthentications of a namespace concern: all services for the root namespace.
func (m *Mesh) touchMutual(namespace string) {
	for key, e := range m.Entries {
		if namespace == model.RootNamespace || key.Namespace == namespace {
			e.touch(m.moved)
		}
	}
}
