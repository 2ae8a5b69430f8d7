package security

import (
	"maps"
	"slices"

	securityv1beta1 "istio.io/api/security/v1beta1"

	"tributary/server/envoy/model"
)

// Compose returns the mode of mutual TLS of a workload, and that of ports where it differs, by the PeerAuthentications that select it, the
// oldest first. As with istiod, the oldest one of the workload counts, then that of its namespace, then that of the mesh. What is unset is
// as the next one has it. Only one of the workload has ports.
func Compose(peers []*model.PeerAuthentication) (mode model.MutualTLS, on map[uint32]model.MutualTLS) {
	levels := levelsOf(peers)
	for _, o := range levels {
		mode = modeOf(o.Spec.GetMtls(), mode)
	}
	for port, mtls := range levels[2].Spec.GetPortLevelMtls() {
		if on == nil {
			on = make(map[uint32]model.MutualTLS)
		}
		on[port] = modeOf(mtls, mode)
	}
	return mode, on
}

// levelsOf returns the oldest objects of the mesh, the namespace and the workload, without a spec where there is none.
func levelsOf(peers []*model.PeerAuthentication) [3]*model.PeerAuthentication {
	levels := [3]*model.PeerAuthentication{{}, {}, {}}
	for _, o := range peers {
		level, selects := 0, len(o.Spec.GetSelector().GetMatchLabels()) > 0
		switch inRoot := o.Key.Namespace == model.RootNamespace; {
		case inRoot && selects:
			continue
		case selects:
			level = 2
		case !inRoot:
			level = 1
		}
		if levels[level].Spec == nil {
			levels[level] = o
		}
	}
	return levels
}

func modeOf(m *securityv1beta1.PeerAuthentication_MutualTLS, inherited model.MutualTLS) model.MutualTLS {
	switch m.GetMode() {
	case securityv1beta1.PeerAuthentication_MutualTLS_UNSET:
		return inherited
	case securityv1beta1.PeerAuthentication_MutualTLS_PERMISSIVE:
		return model.Permissive
	case securityv1beta1.PeerAuthentication_MutualTLS_DISABLE:
		return model.Disabled
	}
	return model.Strict // or of a newer version
}

// addPeers adds which inbound connections are accepted, and by which certificates. A client without an identity refuses what must come by
// mutual TLS, or accepts plaintext if that is allowed.
func addPeers(s *model.Security, all Objects) {
	s.Domains, s.TLS = all.Config.TrustDomains(), all.Config.Spec.GetMeshMTLS()
	s.Paths = all.Config.Spec.GetPathNormalization().GetNormalization()
	s.Mutual, s.MutualByPort = Compose(all.Peers)
	s.Objects = append(s.Objects, model.KeysOf(all.Peers)...)
	if all.Client.Identity != "" {
		return
	}
	consequence := "refuse what has to come by it"
	if all.Warn {
		consequence, s.Plaintext = "accept plaintext", true
	}
	for _, o := range levelsOf(all.Peers) {
		if IsStrict(o.Spec) {
			s.Findings.Note(model.Place{Object: o.Key, Field: "spec"},
				"the Envoy has no identity for mutual TLS: its inbound listeners %s", consequence)
		}
	}
}

// IsStrict says whether a PeerAuthentication accepts mutual TLS only, on all ports or on some.
func IsStrict(spec *securityv1beta1.PeerAuthentication) bool {
	return slices.ContainsFunc(append(slices.Collect(maps.Values(spec.GetPortLevelMtls())), spec.GetMtls()),
		func(m *securityv1beta1.PeerAuthentication_MutualTLS) bool {
			return modeOf(m, model.Permissive) == model.Strict
		})
}
