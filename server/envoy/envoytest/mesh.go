package envoytest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
)

// Node is what an Envoy says of itself.
type Node struct {
	ID       string
	Metadata map[string]any
}

// Nodes are one Envoy of each kind.
var Nodes = []Node{
	{"n", map[string]any{"NAMESPACE": "default"}},
	{
		"sidecar~10.0.0.1~n.shop~shop.svc.cluster.local",
		map[string]any{
			"NAMESPACE": "shop", "INTERCEPTION_MODE": "REDIRECT", "DNS_CAPTURE": "true",
			"LABELS": map[string]any{"app": "one"},
		},
	},
	{"n", map[string]any{"NAMESPACE": "shop", "ON_DEMAND": true}},
	{
		"sidecar~10.0.0.2~n.default~default.svc.cluster.local",
		map[string]any{"NAMESPACE": "default", "INTERCEPTION_MODE": "TPROXY", "ON_DEMAND": true},
	},
	{
		"router~127.0.0.1~gateway.default~default.svc.cluster.local",
		map[string]any{"NAMESPACE": "default", "LABELS": map[string]any{"app": "one", "istio": "ingressgateway"}},
	},
	{"n", map[string]any{"NAMESPACE": "shop", "IDENTITY": "spire"}},
	{
		"router~127.0.0.1~gateway.default~default.svc.cluster.local",
		map[string]any{"NAMESPACE": "default", "LABELS": map[string]any{"app": "one"}, "IDENTITY": "/etc/identity"},
	},
}

// Mesh is a mesh that changes at random, the same for equal seeds.
type Mesh struct {
	Table memstore.Table

	rand    *rand.Rand
	kinds   []resource.Kind
	objects map[resource.Key]*resource.Resource
}

// New returns an empty mesh. If kinds are given, its objects are of these, as many of each.
func New(seed uint64, kinds ...resource.Kind) *Mesh {
	//nolint:gosec // a test's
	return &Mesh{rand: rand.New(rand.NewPCG(seed, 0)), kinds: kinds, objects: make(map[resource.Key]*resource.Resource)}
}

// Change makes a commit that adds, changes or removes some objects.
func (m *Mesh) Change() {
	var puts []*resource.Resource
	var deletes []resource.Key
	for range 1 + m.rand.IntN(3) {
		switch key := m.key(); {
		case m.objects[key] != nil && m.rand.IntN(3) == 0:
			delete(m.objects, key)
			deletes = append(deletes, key)
			puts = slices.DeleteFunc(puts, func(object *resource.Resource) bool { return object.Key() == key })
		default:
			object := m.object(key)
			if object == nil {
				continue
			}
			m.objects[key] = object
			puts = append(slices.DeleteFunc(puts, func(object *resource.Resource) bool { return object.Key() == key }), object)
			deletes = slices.DeleteFunc(deletes, func(k resource.Key) bool { return k == key })
		}
	}
	m.Table.Apply(puts, deletes)
}

// rootKinds are those of which some objects of a list of kinds are in the root namespace.
var rootKinds = []resource.Kind{resource.PeerAuthentication, resource.EnvoyFilter, resource.WasmPlugin}

func (m *Mesh) key() resource.Key {
	key := resource.Key{
		Kind: resource.ServiceEntry, Namespace: m.pick("default", "shop", "other"),
		Name: m.pick("a", "b", "c", "d"),
	}
	if len(m.kinds) > 0 {
		key.Kind = m.kinds[m.rand.IntN(len(m.kinds))]
		switch {
		case key.Kind == resource.MeshConfig:
			return resource.Key{Kind: resource.MeshConfig, Name: "istio"}
		case slices.Contains(rootKinds, key.Kind) && m.one(3):
			key.Namespace = "istio-system"
		}
		return key
	}
	switch m.rand.IntN(14) {
	case 0, 1:
		key.Kind = resource.WorkloadEntry
	case 2:
		key.Kind = resource.DestinationRule
	case 3, 4, 5:
		key.Kind = resource.VirtualService
	case 6:
		key.Kind = resource.Gateway
	case 7:
		if key.Kind = resource.Sidecar; m.one(3) {
			return resource.Key{Kind: resource.MeshConfig, Name: "istio"}
		}
	case 8:
		key.Kind = resource.Telemetry
		if m.one(2) {
			key.Kind = resource.PeerAuthentication
		}
		if m.one(3) {
			key.Namespace = "istio-system"
		}
	case 9:
		key.Kind = resource.WorkloadGroup
	case 10, 11:
		key.Kind = resource.AuthorizationPolicy
		if m.one(3) {
			key.Kind = resource.RequestAuthentication
		}
		if m.one(3) {
			key.Namespace = "istio-system"
		}
	}
	return key
}

// object returns an object that is valid, or nil if none was found.
func (m *Mesh) object(key resource.Key) *resource.Resource {
	for range 20 {
		var spec proto.Message
		switch key.Kind {
		case resource.WorkloadEntry:
			spec = m.workload()
		case resource.WorkloadGroup:
			spec = m.group()
		case resource.DestinationRule:
			spec = m.policy()
		case resource.VirtualService:
			spec = m.routes()
		case resource.Gateway:
			spec = m.gateway()
		case resource.Sidecar:
			spec = m.sidecar()
		case resource.MeshConfig:
			spec = m.config()
		case resource.Telemetry:
			spec = m.telemetry()
		case resource.PeerAuthentication:
			spec = m.peers()
		case resource.AuthorizationPolicy:
			spec = m.authorization()
		case resource.RequestAuthentication:
			spec = m.tokens()
		case resource.EnvoyFilter:
			spec = m.envoyFilter()
		case resource.WasmPlugin:
			spec = m.wasmPlugin()
		default:
			spec = m.service()
		}
		created := time.Unix(1_500_000_000+m.rand.Int64N(4), 0).UTC() // some of one age
		meta := resource.Meta{Key: key, Labels: m.labels(), Created: created}
		if key.Kind == resource.VirtualService && m.one(3) {
			meta.Annotations = map[string]string{resource.RouteSemantics: m.pick("gateway", "gateway", "ingress")}
		}
		result, err := resource.New(meta, spec)
		if err != nil {
			panic(err)
		}
		if _, err := resource.Validate(result); err == nil {
			return result
		}
	}
	return nil
}

func (m *Mesh) pick(of ...string) string { return of[m.rand.IntN(len(of))] }

// one says yes once in n times.
func (m *Mesh) one(in int) bool { return m.rand.IntN(in) == 0 }

func (m *Mesh) labels() map[string]string {
	if m.one(2) {
		return nil
	}
	return map[string]string{"app": m.pick("one", "two"), "version": m.pick("v1", "v2", "latest")}
}

func (m *Mesh) workload() *networking.WorkloadEntry {
	workloadEntry := &networking.WorkloadEntry{
		Address:  m.pick("10.0.0.1", "10.0.0.2", "fd00::1", "name.internal", "unix:///run/one.sock", "unix://"+longPath),
		Labels:   m.labels(),
		Weight:   m.rand.Uint32N(3),
		Locality: m.pick("", "eu", "eu/a", "eu/a/1", "us/b"),
	}
	if m.one(2) {
		workloadEntry.Ports = map[string]uint32{"http0": 8000 + m.rand.Uint32N(3)}
	}
	if m.one(3) {
		workloadEntry.ServiceAccount = m.pick("one", "two")
	}
	if len(workloadEntry.GetLabels()) > 0 && m.one(3) {
		workloadEntry.Labels["security.istio.io/tlsMode"] = m.pick("istio", "disabled")
	}
	return workloadEntry
}

// group returns a group of workloads with a probe that it fills at random.
func (m *Mesh) group() *networking.WorkloadGroup {
	group := &networking.WorkloadGroup{Template: &networking.WorkloadEntry{Labels: m.labels()}}
	if m.one(5) {
		return group
	}
	group.Probe = &networking.ReadinessProbe{PeriodSeconds: m.rand.Int32N(3), FailureThreshold: m.rand.Int32N(3)}
	switch port := 8000 + m.rand.Uint32N(2); m.rand.IntN(4) {
	case 0:
		group.Probe.HealthCheckMethod = &networking.ReadinessProbe_TcpSocket{
			TcpSocket: &networking.TCPHealthCheckConfig{Port: port},
		}
	case 1:
		group.Probe.HealthCheckMethod = &networking.ReadinessProbe_Grpc{Grpc: &networking.GrpcHealthCheckConfig{Port: port}}
	default:
		group.Probe.HealthCheckMethod = &networking.ReadinessProbe_HttpGet{HttpGet: &networking.HTTPHealthCheckConfig{
			Port: port, Path: m.pick("", "ready", "/%"), Scheme: m.pick("", "HTTPS"),
			HttpHeaders: []*networking.HTTPHeader{{Name: m.pick("Host", "x"), Value: m.pick("a.example", "%", "a\nb")}},
		}}
	}
	return group
}

// longPath is longer than the path of a socket may be.
const longPath = "/run/a-path-that-is-longer-than-the-hundred-and-eight-bytes-that-the-address-of-a-unix-socket-has-room-for/one.sock"

func (m *Mesh) service() *networking.ServiceEntry {
	serviceEntry := &networking.ServiceEntry{
		Hosts: []string{m.pick("one.internal", "Two.internal", "three.internal", "*.wild.internal",
			"one.wild.internal")},
		Resolution: networking.ServiceEntry_Resolution(m.rand.IntN(4)), //nolint:gosec // there are four
		Location:   networking.ServiceEntry_Location(m.rand.IntN(2)),   //nolint:gosec // there are two
	}
	if m.one(3) {
		serviceEntry.Hosts = append(serviceEntry.Hosts, m.pick("four.internal", "five.internal"))
	}
	if m.one(2) {
		serviceEntry.Addresses = []string{m.pick("240.0.0.1", "240.0.0.2", "240.1.0.0/16", "fd00::9")}
	}
	if m.one(3) {
		serviceEntry.ExportTo = []string{m.pick(".", "*", "shop", "~")}
	}
	if m.one(4) {
		serviceEntry.SubjectAltNames = []string{m.pick("one.example", "spiffe://example.org/one")}
	}
	for i, number := range []uint32{80, 443, 8080}[:1+m.rand.IntN(3)] {
		serviceEntry.Ports = append(serviceEntry.Ports, &networking.ServicePort{
			Number: number, Name: m.pick("http", "x") + fmt.Sprint(i),
			Protocol:   m.pick("HTTP", "GRPC", "TCP", "TLS", "HTTPS", "UDP", "MONGO", ""),
			TargetPort: m.rand.Uint32N(2) * 9000,
		})
	}
	if m.one(2) {
		serviceEntry.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": m.pick("one", "two")}}
		return serviceEntry
	}
	for range m.rand.IntN(3) {
		serviceEntry.Endpoints = append(serviceEntry.Endpoints, m.workload())
	}
	return serviceEntry
}

func (m *Mesh) policy() *networking.DestinationRule {
	destinationRule := &networking.DestinationRule{
		Host:          m.pick("one.internal", "two.internal", "*.internal", "*", "*.wild.internal"),
		TrafficPolicy: m.traffic(),
	}
	for _, name := range []string{"v1", "v2"} {
		if m.one(2) {
			destinationRule.Subsets = append(destinationRule.Subsets, &networking.Subset{
				Name: name, Labels: map[string]string{"version": name},
				TrafficPolicy: m.traffic(),
			})
		}
	}
	if m.one(3) {
		destinationRule.ExportTo = []string{m.pick(".", "*", "shop")}
	}
	return destinationRule
}

func (m *Mesh) traffic() *networking.TrafficPolicy {
	if m.one(4) {
		return nil
	}
	trafficPolicy := &networking.TrafficPolicy{}
	m.fill(trafficPolicy)
	for i, of := range trafficPolicy.GetPortLevelSettings() {
		of.Port = &networking.PortSelector{Number: []uint32{80, 443, 8080}[i]}
	}
	return trafficPolicy
}

func (m *Mesh) routes() *networking.VirtualService {
	rule := &networking.VirtualService{Hosts: []string{m.pick("one.internal", "two.internal", "none.internal",
		"*.internal",
		"*")}}
	if m.one(2) {
		rule.Gateways = []string{m.pick("mesh", "a", "default/a", "shop/b")}
		if m.one(3) {
			rule.Gateways = append(rule.Gateways, "mesh")
		}
	}
	if m.one(4) {
		rule.ExportTo = []string{m.pick(".", "*", "shop")}
	}
	if m.one(4) { // one to which others delegate
		rule.Hosts, rule.Gateways = nil, nil
	}
	for range 1 + m.rand.IntN(2) {
		httpRoute := m.route()
		if m.one(4) {
			httpRoute = &networking.HTTPRoute{Match: httpRoute.GetMatch(), Delegate: &networking.Delegate{
				Name:      m.pick("a", "b", "c", "d"),
				Namespace: m.pick("", "shop"),
			}}
		}
		rule.Http = append(rule.Http, httpRoute)
	}
	if len(rule.GetHosts()) == 0 {
		return rule
	}
	if m.one(3) {
		tcpRoute := &networking.TCPRoute{Route: m.destinations()}
		for range m.rand.IntN(3) {
			match := &networking.L4MatchAttributes{}
			m.fill(match)
			tcpRoute.Match = append(tcpRoute.Match, match)
		}
		rule.Tcp = append(rule.Tcp, tcpRoute)
	}
	if m.one(3) {
		tlsRoute := &networking.TLSRoute{Route: m.destinations()}
		for range 1 + m.rand.IntN(2) {
			match := &networking.TLSMatchAttributes{}
			m.fill(match)
			match.SniHosts = []string{
				rule.GetHosts()[0],
				m.pick("one.internal", "*.internal", "two.internal"),
			}[:1+m.rand.IntN(2)]
			tlsRoute.Match = append(tlsRoute.Match, match)
		}
		rule.Tls = append(rule.Tls, tlsRoute)
	}
	return rule
}

func (m *Mesh) destinations() (list []*networking.RouteDestination) {
	for i := range 1 + m.rand.IntN(2) {
		list = append(list, &networking.RouteDestination{Destination: m.destination(), Weight: int32(i + 1)})
	}
	return list
}

func (m *Mesh) gateway() *networking.Gateway {
	gateway := &networking.Gateway{}
	if m.one(2) {
		gateway.Selector = map[string]string{"app": m.pick("one", "two")}
	}
	for i := range 1 + m.rand.IntN(3) {
		server := &networking.Server{
			Port: &networking.Port{
				Number: []uint32{80, 443, 9000}[m.rand.IntN(3)], Name: fmt.Sprint("p", i),
				Protocol: m.pick("HTTP", "HTTPS", "TLS", "TCP", "GRPC", "HTTP2"),
			},
			Hosts: []string{m.pick("*", "one.internal", "*.internal", "default/*", "./two.internal")},
		}
		if m.one(5) {
			server.Bind = m.pick("127.0.0.1", "10.0.0.9", "unix:///run/gateway.sock")
		}
		if m.one(3) {
			server.Hosts = append(server.Hosts, m.pick("three.internal", "*.wild.internal"))
		}
		if m.one(4) || server.Port.GetProtocol() == "HTTPS" || server.Port.GetProtocol() == "TLS" {
			server.Tls = &networking.ServerTLSSettings{}
			m.fill(server.GetTls())
		}
		gateway.Servers = append(gateway.Servers, server)
	}
	return gateway
}

func (m *Mesh) sidecar() *networking.Sidecar {
	sidecar := &networking.Sidecar{}
	if m.one(2) {
		sidecar.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": m.pick("one", "two")}}
	}
	for _, port := range []uint32{80, 0} {
		if m.one(2) {
			continue
		}
		egress := &networking.IstioEgressListener{Hosts: []string{m.pick("*/*", "./*", "shop/*", "*/one.internal",
			"*/*.wild.internal")}}
		if port != 0 {
			egress.Port = &networking.SidecarPort{Number: port, Protocol: "HTTP", Name: "http"}
			egress.Bind = m.pick("", "", "127.0.0.2")
		}
		if m.one(2) {
			egress.Hosts = append(egress.Hosts, m.pick("default/two.internal", "./three.internal", "other/*"))
		}
		sidecar.Egress = append(sidecar.Egress, egress)
	}
	if m.one(3) {
		sidecar.InboundConnectionPool = &networking.ConnectionPoolSettings{
			Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: 7},
		}
	}
	if m.one(3) {
		ingress := &networking.IstioIngressListener{
			Port:            &networking.SidecarPort{Number: 80, Protocol: m.pick("HTTP", "TCP", "GRPC", "HTTPS"), Name: "in"},
			Bind:            m.pick("", "127.0.0.1", "127.0.0.2"),
			CaptureMode:     networking.CaptureMode(m.rand.IntN(3)), //nolint:gosec // there are three
			DefaultEndpoint: m.pick("", "127.0.0.1:8080", "0.0.0.0:8080", "unix:///run/app.sock"),
		}
		if ingress.GetPort().GetProtocol() == "HTTPS" {
			ingress.Tls = &networking.ServerTLSSettings{
				Mode: networking.ServerTLSSettings_SIMPLE, ServerCertificate: "/a",
				PrivateKey: "/b",
			}
		}
		sidecar.Ingress = []*networking.IstioIngressListener{ingress}
	}
	if m.one(3) {
		sidecar.OutboundTrafficPolicy = &networking.OutboundTrafficPolicy{
			Mode: networking.OutboundTrafficPolicy_Mode(m.rand.IntN(2)),
		}
	}
	return sidecar
}

func (m *Mesh) route() *networking.HTTPRoute {
	route := &networking.HTTPRoute{}
	m.fill(route)
	route.Delegate, route.Route = nil, nil
	switch m.rand.IntN(5) {
	case 0:
		route.Redirect = &networking.HTTPRedirect{Uri: "/other"}
		m.fill(route.GetRedirect())
		route.DirectResponse, route.Rewrite, route.Fault, route.Mirror, route.Mirrors = nil, nil, nil, nil, nil
	case 1:
		route.DirectResponse = &networking.HTTPDirectResponse{Status: 418}
		m.fill(route.GetDirectResponse().ProtoReflect().Interface())
		route.DirectResponse.Status = 418
		route.Redirect, route.Rewrite, route.Fault, route.Retries, route.Timeout = nil, nil, nil, nil, nil
		route.Mirror, route.Mirrors = nil, nil
	default:
		route.Redirect, route.DirectResponse = nil, nil
		for i := range 1 + m.rand.IntN(2) {
			destination := &networking.HTTPRouteDestination{Destination: m.destination(), Weight: int32(i + 1)}
			if m.one(3) {
				destination.Headers = &networking.Headers{}
				m.fill(destination.GetHeaders())
			}
			route.Route = append(route.Route, destination)
		}
	}
	return route
}

func (m *Mesh) destination() *networking.Destination {
	destination := &networking.Destination{
		Host:   m.pick("one.internal", "two.internal", "three.internal", "short", "nowhere.internal"),
		Subset: m.pick("", "v1", "v2"),
	}
	if m.one(2) {
		destination.Port = &networking.PortSelector{Number: 80}
	}
	return destination
}
