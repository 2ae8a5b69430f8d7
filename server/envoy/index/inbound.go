package index

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// ingress returns the ingress listeners of a Sidecar, which may be nil.
func (s *SidecarRule) ingress() []*networking.IstioIngressListener {
	if s == nil {
		return nil
	}
	return s.spec.GetIngress()
}

// isBound says whether an ingress listener binds its port for clients with or without redirection.
func isBound(i *networking.IstioIngressListener, captures bool) bool {
	if i.GetCaptureMode() == networking.CaptureMode_DEFAULT {
		return !captures
	}
	return i.GetCaptureMode() == networking.CaptureMode_NONE
}

// toWorkload returns the port of a default endpoint at the address of the workload, whatever that is, and which family the address is of.
func toWorkload(endpoint string) (port string, v6, ok bool) {
	if port, ok = strings.CutPrefix(endpoint, "0.0.0.0:"); ok {
		return port, false, true
	}
	port, ok = strings.CutPrefix(endpoint, "[::]:")
	return port, true, ok
}

// needsAddress says whether an ingress listener depends on the addresses of a client.
func needsAddress(i *networking.IstioIngressListener, captures bool) bool {
	_, _, ok := toWorkload(i.GetDefaultEndpoint())
	return ok || isBound(i, captures) && i.GetBind() == ""
}

// ingressHost is the host of an ingress listener whose port no service has.
func ingressHost(sidecar resource.Key) string { return sidecar.Name + "." + sidecar.Namespace }

// touchIngress has clients look again at their inbound listeners if hosts are, or match, that of an ingress listener.
func (m *Mesh) touchIngress(hosts []string, touched map[string]struct{}) {
	for key, s := range m.sidecars {
		if len(s.ingress()) > 0 && slices.ContainsFunc(hosts, func(h string) bool { return model.Matches(h, ingressHost(key)) }) {
			touched[model.InboundUnit] = struct{}{}
		}
	}
}

// hasInbound says whether clients of a profile have inbound listeners.
func hasInbound(p model.Profile, only *SidecarRule) bool {
	return p.Role == model.Sidecar && (p.Captures || slices.ContainsFunc(only.ingress(), func(i *networking.IstioIngressListener) bool {
		return isBound(i, p.Captures) // no connection comes to another one
	}))
}

// inbound returns what comes to the workloads of the clients of a profile, or nil.
func (m *Mesh) inbound(p model.Profile, only *SidecarRule, secured *model.Security) *model.View {
	if !hasInbound(p, only) {
		return nil
	}
	v := &model.View{Host: model.InboundUnit, Secured: secured}
	v.Seen = m.observationOf(p, only, telemetryv1alpha1.WorkloadMode_SERVER)
	config := m.config()
	in := &model.Inbound{
		Captured: p.Captures, Transparent: p.Transparent,
		Localhost: config.Spec.GetInboundTrafficPolicy().GetMode() == meshv1alpha1.MeshConfig_InboundTrafficPolicy_LOCALHOST,
	}
	var from model.Digest
	from.Flag(in.Localhost)
	if only != nil {
		v.Objects = append(v.Objects, only.key)
		from.Object(only.key)
		from.Text(only.version)
	}
	text, ports := p.ServedPorts()
	if keys := m.blocking(p, ports); len(keys) > 0 && !m.Warn {
		v.Secured = security.Deny(keys, "only waypoints enforce targetRefs to a Service or a ServiceEntry")
	}
	if len(only.ingress()) > 0 {
		addIngress(v, in, p, only, strings.Split(text, ","), ports)
	} else {
		addServices(in, ports)
	}
	slices.SortFunc(in.Ports, func(a, b model.Workport) int { return cmp.Compare(a.Target, b.Target) })
	for i := range in.Ports {
		w := &in.Ports[i]
		policy := m.policy(&model.Service{Host: slices.Concat(w.Hosts, []string{w.Host})[0], Namespace: p.Namespace}, p.Namespace)
		if policy.Traffic != nil {
			w.Policy = policy
			v.Objects = append(v.Objects, policy.Objects...)
		}
		from.Text(policy.From)
		if w.Pool == nil && only != nil {
			w.Pool = only.spec.GetInboundConnectionPool()
		}
	}
	in.From = string(from)
	v.Inbound = in
	v.Objects = append(append(v.Objects, v.Seen.Objects...), v.Secured.Objects...)
	v.Findings = append(append(v.Findings, v.Seen.Findings...), v.Secured.Findings...)
	return complete(v, p)
}

// addServices adds the ports of services, of which there may be thousands. Of several on one port of the workload, the first says how it is
// spoken to.
func addServices(in *model.Inbound, ports []model.ServicePort) {
	at, had := make(map[uint32]int), make(map[model.ServicePort]bool)
	for _, p := range ports {
		if p.Target == model.InboundPort || p.Target == model.OutboundPort { // of the Envoy itself
			continue
		}
		i, known := at[p.Target]
		if !known {
			i = len(in.Ports)
			at[p.Target] = i
			in.Ports = append(in.Ports, model.Workport{ServicePort: p, Address: model.Wildcard})
		}
		if host := (model.ServicePort{Target: p.Target, Host: p.Host}); in.Ports[i].Number == p.Number && !had[host] {
			had[host] = true
			in.Ports[i].Hosts = append(in.Ports[i].Hosts, p.Host)
		}
	}
}

// addIngress adds the ingress listeners of a Sidecar, which are instead of all ports of services.
func addIngress(v *model.View, in *model.Inbound, p model.Profile, only *SidecarRule, addresses []string, ports []model.ServicePort) {
	for i, spec := range only.ingress() {
		number := spec.GetPort().GetNumber()
		w := model.Workport{
			ServicePort: model.ServicePort{
				Host: ingressHost(only.key), Number: number, Target: number,
				Protocol: model.InboundProtocol(spec.GetPort().GetProtocol(), spec.GetTls() != nil),
			},
			Address: model.AddressOf(spec.GetBind()), Bound: isBound(spec, p.Captures), Pool: spec.GetConnectionPool(),
			Ingress: spec, Endpoint: spec.GetDefaultEndpoint(), Place: model.Place{Of: only.key, Field: fmt.Sprintf("spec.ingress[%d]", i)},
		}
		switch {
		case number == model.InboundPort || number == model.OutboundPort:
			v.Findings.Note(w.Place.In("port"), "the Envoy itself has the port: there is no listener")
			continue
		case slices.ContainsFunc(in.Ports, func(o model.Workport) bool { return o.Target == number }):
			v.Findings.Note(w.Place.In("port"), "an ingress listener before has the port: there is no other one")
			continue
		case addresses[0] == "" && needsAddress(spec, p.Captures):
			v.Findings.Note(w.Place, "the node says no address of its own: there is no listener")
			continue
		case w.Address == "" && w.Bound: // where others can reach it
			w.Address = firstOf(addresses, netip.Addr.IsGlobalUnicast, model.Wildcard)
		case w.Address == "":
			w.Address = model.Wildcard
		}
		if !resource.IsAddress(w.Address) {
			v.Findings.Note(w.Place.In("bind"), "listeners have addresses only: there is none")
			continue
		}
		if port, v6, ok := toWorkload(w.Endpoint); ok {
			own := firstOf(addresses, netip.Addr.Is4, model.Localhost)
			if v6 {
				own = firstOf(addresses, netip.Addr.Is6, "::1")
			}
			w.Endpoint = net.JoinHostPort(own, port)
		}
		if of := slices.IndexFunc(ports, func(p model.ServicePort) bool { return p.Target == number }); of >= 0 {
			w.Hosts, w.External = []string{ports[of].Host}, ports[of].External
		}
		in.Ports = append(in.Ports, w)
	}
}

// firstOf returns the first address of some sort, or another one.
func firstOf(addresses []string, sort func(netip.Addr) bool, other string) string {
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil && sort(a) {
			return text
		}
	}
	return other
}
