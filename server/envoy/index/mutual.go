package index

import (
	"slices"

	securityv1beta1 "istio.io/api/security/v1beta1"

	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// mutual returns the mutual TLS of clients of a profile with a service, or nil if they use none or have no identity. As
// with istiod, a PeerAuthentication that disables it for a namespace or the mesh concerns the service, and one for
// workloads only their endpoints.
func (m *Mesh) mutual(service *model.Service, policy *model.Policy, profile model.Profile) *model.Mutual {
	if profile.Identity == "" {
		return nil
	}
	peers := make(objects[*securityv1beta1.PeerAuthentication])
	for _, namespace := range []string{service.Namespace, model.RootNamespace} {
		peers[namespace] = slices.Clone(m.peers[namespace]) // the mesh may change
	}
	modes := func(namespace string, labels map[string]string) (model.MutualTLS, map[uint32]model.MutualTLS) {
		return security.Compose(peers.selectingObjects(namespace, func(o *model.PeerAuthentication) bool {
			return model.SelectsLabels(o.Spec.GetSelector().GetMatchLabels(), labels)
		}))
	}
	config := m.config()
	mode, _ := modes(service.Namespace, nil)
	auto := config.AutoMutual() && !service.External && mode != model.Disabled
	if !auto && !WantsMutual(policy) {
		return nil
	}
	var from model.Digest
	from.Flag(auto)
	for _, o := range peers.selectingObjects(service.Namespace, func(*model.PeerAuthentication) bool { return true }) {
		from.Object(o.Key)
		from.Text(o.Version, o.Created.String())
	}
	return &model.Mutual{Auto: auto, From: string(from), Accepts: func(endpoint *model.Endpoint, port uint32) bool {
		mode, portModes := modes(endpoint.Namespace, endpoint.Labels)
		if portMode, ok := portModes[port]; ok {
			mode = portMode
		}
		return mode != model.Disabled
	}}
}

// WantsMutual reports whether any part of a policy requires mutual TLS with certificates of the mesh.
func WantsMutual(policy *model.Policy) bool {
	return slices.ContainsFunc(trafficPolicies(policy),
		func(t trafficPolicy) bool { return model.IsMutual(t.GetTls()) })
}

// touchMutual touches the services that PeerAuthentications of a namespace concern: all services for the root
// namespace.
func (m *Mesh) touchMutual(namespace string) {
	for key, e := range m.Entries {
		if namespace == model.RootNamespace || key.Namespace == namespace {
			e.touch(m.moved)
		}
	}
}
