package index

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/resource"
	"tributary/server/envoy/model"
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
	named := make(map[string]struct{})
	for key, s := range m.sidecars {
		if len(s.ingress()) > 0 {
			named[ingressHost(key)] = struct{}{}
		}
	}
	matched := make(map[string]struct{})
	for _, host := range hosts {
		if _, is := named[host]; is {
			matched[host] = struct{}{}
		} else if model.IsWildcard(host) {
			touchMatching(host, named, matched)
		}
	}
	if len(matched) > 0 {
		touched[model.InboundUnit] = struct{}{}
	}
}

// hasInbound says whether clients of a profile have inbound listeners.
func hasInbound(p model.Profile, only *SidecarRule) bool {
	return p.Role == model.Sidecar && (p.Captures || slices.ContainsFunc(only.ingress(), func(i *networking.IstioIngressListener) bool {
		return isBound(i, p.Captures) // no connection comes to another one
	}))
}

// inbound returns what comes to the workloads of the clients of a profile, or nil.
func (m *Mesh) inbound(p model.Profile, only *SidecarRule) *model.View {
	if !hasInbound(p, only) {
		return nil
	}
	v := &model.View{Host: model.InboundUnit, Secured: m.Security(p, only)}
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
	if len(only.ingress()) > 0 {
		addIngress(v, in, p, only, strings.Split(text, ","), ports)
	} else {
		addServices(in, ports)
	}
	slices.SortFunc(in.Ports, func(a, b model.Workport) int { return cmp.Compare(a.Number, b.Number) })
	for i := range in.Ports {
		w := &in.Ports[i]
		policy := m.policy(&model.Service{Host: slices.Concat(w.Hosts, []string{w.Host})[0], Namespace: p.Namespace}, p.Namespace)
		if policy.Traffic != nil {
			w.Policy = &policy
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
	type hostAt struct {
		target uint32
		host   string
	}
	at, had := make(map[uint32]int), make(map[hostAt]bool)
	for _, p := range ports {
		i, known := at[p.Target]
		switch {
		case p.Target == model.InboundPort || p.Target == model.OutboundPort: // of the Envoy itself
		case !known:
			at[p.Target], had[hostAt{p.Target, p.Host}] = len(in.Ports), true
			in.Ports = append(in.Ports, model.Workport{
				Number: p.Target, Protocol: p.Protocol, Host: p.Host, Service: p.Number, Hosts: []string{p.Host}, External: p.External,
				Address: model.Wildcard,
			})
		case in.Ports[i].Service == p.Number && !had[hostAt{p.Target, p.Host}]:
			had[hostAt{p.Target, p.Host}] = true
			in.Ports[i].Hosts = append(in.Ports[i].Hosts, p.Host)
		}
	}
}

// addIngress adds the ingress listeners of a Sidecar, which are instead of all ports of services.
func addIngress(v *model.View, in *model.Inbound, p model.Profile, only *SidecarRule, addresses []string, ports []model.ServicePort) {
	for i, spec := range only.ingress() {
		number := spec.GetPort().GetNumber()
		w := model.Workport{
			Number: number, Protocol: model.InboundProtocol(spec.GetPort().GetProtocol(), spec.GetTls() != nil),
			Host: ingressHost(only.key), Service: number, Address: model.AddressOf(spec.GetBind()), Bound: isBound(spec, p.Captures),
			Pool: spec.GetConnectionPool(), Sidecar: &model.SidecarName{Namespace: only.key.Namespace, Name: only.key.Name},
			Endpoint: spec.GetDefaultEndpoint(), TLS: spec.GetTls(),
			Place: model.Place{Of: only.key, Field: fmt.Sprintf("spec.ingress[%d]", i)},
		}
		switch {
		case number == model.InboundPort || number == model.OutboundPort:
			v.Findings.Note(w.Place.In("port"), "the Envoy itself has the port: there is no listener")
			continue
		case slices.ContainsFunc(in.Ports, func(o model.Workport) bool { return o.Number == number }):
			v.Findings.Note(w.Place.In("port"), "an ingress listener before has the port: there is no other one")
			continue
		case addresses[0] == "" && needsAddress(spec, p.Captures):
			v.Findings.Note(w.Place, "the node says no address of its own: there is no listener")
			continue
		case w.Address == "" && w.Bound:
			w.Address = boundAddress(addresses)
		case w.Address == "":
			w.Address = model.Wildcard
		}
		if !resource.IsAddress(w.Address) {
			v.Findings.Note(w.Place.In("bind"), "listeners have addresses only: there is none")
			continue
		}
		if port, v6, ok := toWorkload(w.Endpoint); ok {
			w.Endpoint = ownAddress(addresses, v6) + ":" + port
		}
		if of := slices.IndexFunc(ports, func(p model.ServicePort) bool { return p.Target == number }); of >= 0 {
			w.Hosts, w.External = []string{ports[of].Host}, ports[of].External
		}
		in.Ports = append(in.Ports, w)
	}
}

// boundAddress is where a listener of a workload with some addresses is: the first one that others can reach, else everywhere.
func boundAddress(addresses []string) string {
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil && a.IsGlobalUnicast() {
			return text
		}
	}
	return model.Wildcard
}

// ownAddress is the first address of a family, as it stands before a port; of those of a workload without one, the loopback interface.
func ownAddress(addresses []string, v6 bool) string {
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil && a.Is6() == v6 {
			return model.InURL(text)
		}
	}
	if v6 {
		return "[::1]"
	}
	return model.Localhost
}
