package index

import (
	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// mutual returns how clients of a profile authenticate a service, or nil if they do not, or have no identity. As with istiod, only
// PeerAuthentications of a whole namespace or of the mesh keep clients from trying; those of workloads concern these.
func (m *Mesh) mutual(s *model.Service, policy *model.Policy, p model.Profile) *model.Mutual {
	peers := m.peers.selecting(s.Namespace, func(*model.PeerAuthentication) bool { return true })
	config := m.config()
	mode, _ := security.Compose(selecting(peers, s.Namespace, nil))
	auto := config.AutoMutual() && !s.External && mode != model.Disabled
	if p.Identity == "" || !auto && !WantsMutual(policy) {
		return nil
	}
	domains := config.TrustDomains()
	var from model.Digest
	from.Flag(auto)
	from.Text(domains...)
	from.Found(model.KeysOf(peers), nil)
	for _, o := range peers {
		from.Text(o.Version, o.Created.String())
	}
	return &model.Mutual{Auto: auto, Domains: domains, From: string(from), Accepts: func(e *model.Endpoint, port uint32) bool {
		mode, on := security.Compose(selecting(peers, e.Namespace, e.Labels))
		if of, is := on[port]; is {
			mode = of
		}
		return mode != model.Disabled
	}}
}

// selecting returns the objects of a namespace and of the root namespace that select workloads with labels.
func selecting(peers []*model.PeerAuthentication, namespace string, labels map[string]string) (list []*model.PeerAuthentication) {
	for _, o := range peers {
		if (o.Key.Namespace == namespace || o.Key.Namespace == model.RootNamespace) &&
			model.SelectsLabels(o.Spec.GetSelector().GetMatchLabels(), labels) {
			list = append(list, o)
		}
	}
	return list
}

// WantsMutual says whether a policy requires mutual TLS with certificates of the mesh somewhere.
func WantsMutual(p *model.Policy) bool {
	for t := range trafficPolicies(p) {
		if model.IsMutual(t.GetTls()) {
			return true
		}
	}
	return false
}

// touchMutual touches the services whose endpoints PeerAuthentications of a namespace concern: all services for the root namespace, and for
// the configuration of the mesh, which has none.
func (m *Mesh) touchMutual(namespace string) {
	for key, e := range m.Entries {
		if namespace == "" || namespace == model.RootNamespace || key.Namespace == namespace {
			e.touch(m.moved)
		}
	}
}
