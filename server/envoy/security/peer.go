package security

import (
	"maps"
	"slices"

	securityv1beta1 "istio.io/api/security/v1beta1"

	"tributary/server/envoy/model"
)

// Compose returns the mode of mutual TLS of a workload, and the modes of ports that differ. peers are the
// PeerAuthentications that select it, the oldest first. As in istiod, the oldest one of the workload wins over the
// oldest of the namespace, and that over the oldest of the mesh. An unset mode is inherited from the next level. Only
// the workload's can set ports.
func Compose(peers []*model.PeerAuthentication) (mode model.MutualTLS, byPort map[uint32]model.MutualTLS) {
	levels := oldestByLevel(peers)
	for _, object := range levels {
		mode = effectiveMode(object.Spec.GetMtls(), mode)
	}
	for port, mtls := range levels[2].Spec.GetPortLevelMtls() {
		if byPort == nil {
			byPort = make(map[uint32]model.MutualTLS)
		}
		byPort[port] = effectiveMode(mtls, mode)
	}
	return mode, byPort
}

// oldestByLevel returns the oldest objects of the mesh, the namespace and the workload. Missing ones have no spec.
func oldestByLevel(peers []*model.PeerAuthentication) [3]*model.PeerAuthentication {
	levels := [3]*model.PeerAuthentication{{}, {}, {}}
	for _, object := range peers {
		level, selects := 0, len(object.Spec.GetSelector().GetMatchLabels()) > 0
		switch inRoot := object.Key.Namespace == model.RootNamespace; {
		case inRoot && selects:
			continue
		case selects:
			level = 2
		case !inRoot:
			level = 1
		}
		if levels[level].Spec == nil {
			levels[level] = object
		}
	}
	return levels
}

func effectiveMode(setting *securityv1beta1.PeerAuthentication_MutualTLS, inherited model.MutualTLS) model.MutualTLS {
	switch setting.GetMode() {
	case securityv1beta1.PeerAuthentication_MutualTLS_UNSET:
		return inherited
	case securityv1beta1.PeerAuthentication_MutualTLS_PERMISSIVE:
		return model.Permissive
	case securityv1beta1.PeerAuthentication_MutualTLS_DISABLE:
		return model.Disabled
	}
	return model.Strict // also for modes of newer versions
}

// addPeers adds the modes and certificates of inbound connections. A client without an identity refuses connections
// that require mutual TLS, or accepts plaintext if Warn allows that.
func addPeers(result *model.Security, objects Objects) {
	result.Domains, result.TLS = objects.Config.TrustDomains(), objects.Config.Spec.GetMeshMTLS()
	result.Paths = objects.Config.Spec.GetPathNormalization().GetNormalization()
	result.Mutual, result.MutualByPort = Compose(objects.Peers)
	result.Objects = append(result.Objects, model.KeysOf(objects.Peers)...)
	if objects.Client.Identity != "" {
		return
	}
	consequence := "refuse connections that require it"
	if objects.Warn {
		consequence, result.Plaintext = "accept plaintext", true
	}
	for _, object := range oldestByLevel(objects.Peers) {
		if IsStrict(object.Spec) {
			result.Findings.Note(model.PlaceIn(object.Key, "spec"),
				"the Envoy has no identity for mutual TLS: its inbound listeners %s", consequence)
		}
	}
}

// IsStrict reports whether a PeerAuthentication requires mutual TLS on a port or on each.
func IsStrict(spec *securityv1beta1.PeerAuthentication) bool {
	return slices.ContainsFunc(append(slices.Collect(maps.Values(spec.GetPortLevelMtls())), spec.GetMtls()),
		func(m *securityv1beta1.PeerAuthentication_MutualTLS) bool {
			return effectiveMode(m, model.Permissive) == model.Strict
		})
}
