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
		if o != nil {
			mode = modeOf(o.Spec.GetMtls(), mode)
		}
	}
	workload := levels[2]
	if workload == nil || len(workload.Spec.GetPortLevelMtls()) == 0 {
		return mode, nil
	}
	on = make(map[uint32]model.MutualTLS)
	for port, mtls := range workload.Spec.GetPortLevelMtls() {
		on[port] = modeOf(mtls, mode)
	}
	return mode, on
}

// levelsOf returns the oldest objects of the mesh, the namespace and the workload; any may be nil.
func levelsOf(peers []*model.PeerAuthentication) (levels [3]*model.PeerAuthentication) {
	for _, o := range peers {
		level, selects, root := 1, len(o.Spec.GetSelector().GetMatchLabels()) > 0, o.Key.Namespace == model.RootNamespace
		switch {
		case root && selects:
			continue
		case root:
			level = 0
		case selects:
			level = 2
		}
		if levels[level] == nil {
			levels[level] = o
		}
	}
	return levels
}

func modeOf(m *securityv1beta1.PeerAuthentication_MutualTLS, inherited model.MutualTLS) model.MutualTLS {
	switch m.GetMode() {
	case securityv1beta1.PeerAuthentication_MutualTLS_STRICT:
		return model.Strict
	case securityv1beta1.PeerAuthentication_MutualTLS_PERMISSIVE:
		return model.Permissive
	case securityv1beta1.PeerAuthentication_MutualTLS_DISABLE:
		return model.Disabled
	case securityv1beta1.PeerAuthentication_MutualTLS_UNSET:
		return inherited
	}
	return model.Strict // of a newer version
}

// addPeers adds which inbound connections are accepted, and by which certificates. Gateways do as their servers say.
func addPeers(s *model.Security, all Objects) {
	s.Domains, s.TLS = all.Config.TrustDomains(), all.Config.Spec.GetMeshMTLS()
	s.Paths = all.Config.Spec.GetPathNormalization().GetNormalization()
	if all.Client.Role != model.Sidecar {
		return
	}
	s.Mutual, s.MutualOn = Compose(all.Peers)
	var from model.Digest
	for _, o := range all.Peers {
		s.Objects = append(s.Objects, o.Key)
		from.Text(o.Version)
		from.Number(o.Created.UnixNano())
	}
	s.From = string(from)
	if all.Client.Identity == "" {
		withoutIdentity(s, all)
	}
}

// withoutIdentity has a client that cannot accept mutual TLS refuse what must come by it, or accept plaintext if that is allowed.
func withoutIdentity(s *model.Security, all Objects) {
	for _, o := range levelsOf(all.Peers) {
		if o == nil || !IsStrict(o.Spec) {
			continue
		}
		why := "the Envoy has no identity for mutual TLS: its inbound listeners refuse what has to come by it"
		if all.Warn {
			why = "the Envoy has no identity for mutual TLS: its inbound listeners accept plaintext"
		}
		s.Findings.Note(model.Place{Of: o.Key, Field: "spec"}, "%s", why)
	}
	if !all.Warn {
		return
	}
	if s.Mutual == model.Strict {
		s.Mutual = model.Permissive
	}
	for port, mode := range s.MutualOn {
		if mode == model.Strict {
			s.MutualOn[port] = model.Permissive
		}
	}
}

// IsStrict says whether a PeerAuthentication accepts mutual TLS only, on all ports or on some.
func IsStrict(spec *securityv1beta1.PeerAuthentication) bool {
	strict := func(m *securityv1beta1.PeerAuthentication_MutualTLS) bool {
		return modeOf(m, model.Permissive) == model.Strict
	}
	return strict(spec.GetMtls()) || slices.ContainsFunc(slices.Collect(maps.Values(spec.GetPortLevelMtls())), strict)
}
