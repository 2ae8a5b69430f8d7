package index

import (
	"cmp"
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
func (s *Sidecar) ingress() []*networking.IstioIngressListener {
	if s == nil {
		return nil
	}
	return s.spec.GetIngress()
}

// isBound reports whether an ingress listener binds its port. captures says whether the clients have redirection.
func isBound(i *networking.IstioIngressListener, captures bool) bool {
	if i.GetCaptureMode() == networking.CaptureMode_DEFAULT {
		return !captures
	}
	return i.GetCaptureMode() == networking.CaptureMode_NONE
}

// toWorkload parses a default endpoint that stands for the address of the workload: the port, and whether the family is
// IPv6.
func toWorkload(endpoint string) (port string, v6, ok bool) {
	if port, ok = strings.CutPrefix(endpoint, "0.0.0.0:"); ok {
		return port, false, true
	}
	port, ok = strings.CutPrefix(endpoint, "[::]:")
	return port, true, ok
}

// needsAddress reports whether an ingress listener depends on the addresses of a client.
func needsAddress(i *networking.IstioIngressListener, captures bool) bool {
	_, _, ok := toWorkload(i.GetDefaultEndpoint())
	return ok || isBound(i, captures) && i.GetBind() == ""
}

// ingressHost is the host of an ingress listener on a port without a service.
func ingressHost(sidecar resource.Key) string { return sidecar.Name + "." + sidecar.Namespace }

// touchIngress makes clients evaluate their inbound listeners again if a host matches that of an ingress listener.
func (m *Mesh) touchIngress(hosts []string) {
	for key, s := range m.sidecars {
		if len(s.ingress()) > 0 && slices.ContainsFunc(hosts,
			func(h string) bool { return model.Matches(h, ingressHost(key)) }) {
			m.touched[model.InboundPseudoHost] = true
		}
	}
}

// hasInbound reports whether clients of a profile have inbound listeners.
func hasInbound(profile model.Profile, sidecar *Sidecar) bool {
	return profile.Role == model.Sidecar &&
		(profile.Captures || slices.ContainsFunc(sidecar.ingress(), func(i *networking.IstioIngressListener) bool {
			return isBound(i, profile.Captures) // an unbound listener gets no connections
		}))
}

// inbound returns the view of the inbound traffic of the clients of a profile, or nil.
func (m *Mesh) inbound(profile model.Profile, sidecar *Sidecar, secured *model.Security) *model.View {
	if !hasInbound(profile, sidecar) {
		return nil
	}
	view := &model.View{Host: model.InboundPseudoHost, Security: secured}
	view.Observability = m.observationOf(profile, sidecar, telemetryv1alpha1.WorkloadMode_SERVER)
	config := m.config()
	inbound := &model.Inbound{
		Captured: profile.Captures, Transparent: profile.Transparent,
		Localhost: config.Spec.GetInboundTrafficPolicy().GetMode() == meshv1alpha1.MeshConfig_InboundTrafficPolicy_LOCALHOST,
	}
	var from model.Digest
	from.Flag(inbound.Localhost)
	if sidecar != nil {
		view.Objects = append(view.Objects, sidecar.key)
		from.Object(sidecar.key)
		from.Text(sidecar.version)
	}
	text, ports := profile.ServedPorts()
	if keys := m.blocking(profile, ports); len(keys) > 0 && !m.Warn {
		view.Security = security.Deny(keys, "only waypoints enforce targetRefs to a Service or a ServiceEntry")
	}
	if len(sidecar.ingress()) > 0 {
		addIngress(view, inbound, profile, sidecar, strings.Split(text, ","), ports)
	} else {
		addServices(inbound, ports)
	}
	slices.SortFunc(inbound.Ports, func(a, b model.WorkloadPort) int { return cmp.Compare(a.Target, b.Target) })
	for i := range inbound.Ports {
		workport := &inbound.Ports[i]
		policy := m.policy(&model.Service{
			Host:      slices.Concat(workport.Hosts, []string{workport.Host})[0],
			Namespace: profile.Namespace,
		}, profile.Namespace)
		if policy.Traffic != nil {
			workport.Policy = policy
			view.Objects = append(view.Objects, policy.Objects...)
		}
		from.Text(policy.From)
		if workport.Pool == nil && sidecar != nil {
			workport.Pool = sidecar.spec.GetInboundConnectionPool()
		}
	}
	inbound.From = string(from)
	view.Inbound = inbound
	view.Objects = append(append(view.Objects, view.Observability.Objects...), view.Security.Objects...)
	view.Findings = append(append(view.Findings, view.Observability.Findings...), view.Security.Findings...)
	return completeView(view, profile)
}

// addServices adds the ports of services; there may be thousands. The first service on a port of the workload decides
// about the protocol.
func addServices(inbound *model.Inbound, ports []model.ServicePort) {
	positions, listed := make(map[uint32]int), make(map[model.ServicePort]bool)
	for _, port := range ports {
		if port.Target == model.InboundCapturePort ||
			port.Target == model.OutboundCapturePort { // the Envoy itself uses the port
			continue
		}
		i, exists := positions[port.Target]
		if !exists {
			i = len(inbound.Ports)
			positions[port.Target] = i
			inbound.Ports = append(inbound.Ports, model.WorkloadPort{ServicePort: port, Address: model.Wildcard})
		}
		if host := (model.ServicePort{Target: port.Target, Host: port.Host}); inbound.Ports[i].Number == port.Number &&
			!listed[host] {
			listed[host] = true
			inbound.Ports[i].Hosts = append(inbound.Ports[i].Hosts, port.Host)
		}
	}
}

// addIngress adds the ingress listeners of a Sidecar. They replace all ports of services.
func addIngress(
	view *model.View, inbound *model.Inbound, profile model.Profile, sidecar *Sidecar,
	addresses []string, ports []model.ServicePort,
) {
	for i, spec := range sidecar.ingress() {
		number := spec.GetPort().GetNumber()
		workport := model.WorkloadPort{
			ServicePort: model.ServicePort{
				Host: ingressHost(sidecar.key), Number: number, Target: number,
				Protocol: model.InboundProtocol(spec.GetPort().GetProtocol(), spec.GetTls() != nil),
			},
			Address: model.AddressOf(spec.GetBind()), Bound: isBound(spec, profile.Captures), Pool: spec.GetConnectionPool(),
			Ingress: spec, Endpoint: spec.GetDefaultEndpoint(),
			Place: model.PlaceIn(sidecar.key, "spec.ingress[%d]", i),
		}
		switch {
		case number == model.InboundCapturePort || number == model.OutboundCapturePort:
			view.Findings.Note(workport.Place.Subfield("port"), "the Envoy itself has the port: there is no listener")
			continue
		case slices.ContainsFunc(inbound.Ports, func(workport model.WorkloadPort) bool { return workport.Target == number }):
			view.Findings.Note(workport.Place.Subfield("port"), "an ingress listener before has the port: there is no other one")
			continue
		case addresses[0] == "" && needsAddress(spec, profile.Captures):
			view.Findings.Note(workport.Place, "the node says no address of its own: there is no listener")
			continue
		case workport.Address == "" && workport.Bound: // a reachable address
			workport.Address = firstAddress(addresses, netip.Addr.IsGlobalUnicast, model.Wildcard)
		case workport.Address == "":
			workport.Address = model.Wildcard
		}
		if !resource.IsAddress(workport.Address) {
			view.Findings.Note(workport.Place.Subfield("bind"), "listeners have addresses only: there is none")
			continue
		}
		if port, v6, ok := toWorkload(workport.Endpoint); ok {
			address := firstAddress(addresses, netip.Addr.Is4, model.Localhost)
			if v6 {
				address = firstAddress(addresses, netip.Addr.Is6, "::1")
			}
			workport.Endpoint = net.JoinHostPort(address, port)
		}
		if position := slices.IndexFunc(ports, func(p model.ServicePort) bool { return p.Target == number }); position >= 0 {
			workport.Hosts = []string{ports[position].Host}
			workport.External = ports[position].External
		}
		inbound.Ports = append(inbound.Ports, workport)
	}
}

// firstAddress returns the first matching address, or the fallback.
func firstAddress(addresses []string, matches func(netip.Addr) bool, fallback string) string {
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil && matches(a) {
			return text
		}
	}
	return fallback
}
