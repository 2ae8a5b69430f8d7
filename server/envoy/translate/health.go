package translate

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rawv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// health is how a cluster checks its endpoints. A cluster has one check, that of the oldest WorkloadGroup whose workloads it has; it checks
// only endpoints of this group, and of groups whose probe differs in the port and the Host header only. nil checks nothing.
type health struct {
	check   *corev3.HealthCheck
	tls     bool // whatever the certificate is
	targets map[*model.WorkloadGroup]target
}

// target is what a probe asks of an endpoint.
type target struct {
	port uint32
	host string // empty for the address
}

// healthOf returns how the cluster of a port or subset checks its endpoints.
func (t *Translation) healthOf(p *model.Port, subset *networking.Subset, policy *networking.TrafficPolicy, client model.Profile) *health {
	if client.Role == model.Proxyless {
		return nil // they check nothing
	}
	var groups []*model.WorkloadGroup
	for _, e := range p.Endpoints() {
		if e.Group == nil || e.Group.Spec.GetProbe() == nil || !has(subset, &e) {
			continue
		}
		if strings.HasPrefix(e.Address, UnixPrefix) {
			t.Findings.Note(model.Place{Of: e.Group.Key, Field: "spec.probe"}, "a socket has no port: %s is not checked", e.Address)
		} else if !slices.Contains(groups, e.Group) {
			groups = append(groups, e.Group)
		}
	}
	slices.SortFunc(groups, (*model.WorkloadGroup).Compare)
	var h *health
	for _, g := range groups {
		place := model.Place{Of: g.Key, Field: "spec.probe"}
		check, tls, to, field, why := checkOf(g.Spec.GetProbe())
		if why == "" && check.GetGrpcHealthCheck() != nil && !speaksHTTP2(p, policy) {
			why = p.Owner.FullName() + " has a port that does not speak HTTP/2, which Envoy needs for it"
		}
		switch {
		case why != "":
			t.Findings.Note(place.In("%s", field), "%s: its workloads are not checked", why)
		case h == nil:
			h = &health{check, tls, map[*model.WorkloadGroup]target{g: to}}
		case tls == h.tls && proto.Equal(check, h.check):
			h.targets[g] = to
		default:
			t.Findings.Note(place, "%s is checked as WorkloadGroup %s says, which is older: workloads of this one are not checked",
				p.Owner.FullName(), groups[0].Key.FullName())
		}
	}
	return h
}

func speaksHTTP2(p *model.Port, policy *networking.TrafficPolicy) bool {
	http := policy.GetConnectionPool().GetHttp()
	upgrades := http.GetH2UpgradePolicy() == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE
	return !http.GetUseClientProtocol() && (p.Protocol == model.ProtocolHTTP2 || upgrades)
}

// checkOf returns the health check of a probe, or the field for which there is none, and why.
func checkOf(probe *networking.ReadinessProbe) (check *corev3.HealthCheck, tls bool, to target, field, why string) {
	const elsewhere = "clients probe the address of an endpoint only"
	seconds := func(n, unset int32) *durationpb.Duration {
		return &durationpb.Duration{Seconds: int64(cmp.Or(n, unset))}
	}
	times := func(n int32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(uint32(cmp.Or(n, 1))) } //nolint:gosec // not negative
	check = &corev3.HealthCheck{
		Timeout: seconds(probe.GetTimeoutSeconds(), 1), Interval: seconds(probe.GetPeriodSeconds(), 10),
		NoTrafficInterval: seconds(probe.GetPeriodSeconds(), 10), // Envoy's own is a minute
		HealthyThreshold:  times(probe.GetSuccessThreshold()), UnhealthyThreshold: times(probe.GetFailureThreshold()),
	}
	switch m := probe.GetHealthCheckMethod().(type) {
	case *networking.ReadinessProbe_HttpGet:
		field = "httpGet"
		if m.HttpGet.GetHost() != "" {
			return nil, false, to, "httpGet.host", elsewhere
		}
		to.port, tls = m.HttpGet.GetPort(), m.HttpGet.GetScheme() == "HTTPS"
		of := &corev3.HealthCheck_HttpHealthCheck{
			Path: "/" + strings.TrimPrefix(m.HttpGet.GetPath(), "/"),
			// Istio takes statuses below 400. Envoy counts failures only for retriable statuses.
			ExpectedStatuses:  []*typev3.Int64Range{{Start: http.StatusOK, End: http.StatusBadRequest}},
			RetriableStatuses: []*typev3.Int64Range{{Start: 100, End: http.StatusOK}, {Start: http.StatusBadRequest, End: 600}},
		}
		for _, header := range m.HttpGet.GetHttpHeaders() {
			if strings.EqualFold(header.GetName(), "host") {
				to.host = cmp.Or(to.host, header.GetValue())
				continue
			}
			if strings.HasPrefix(header.GetName(), ":") {
				return nil, false, to, "httpGet.httpHeaders", "Envoy sets " + header.GetName() + " itself"
			}
			of.RequestHeadersToAdd = append(of.RequestHeadersToAdd, &corev3.HeaderValueOption{Header: &corev3.HeaderValue{
				Key: header.GetName(), Value: strings.ReplaceAll(header.GetValue(), "%", "%%"),
			}})
		}
		check.HealthChecker = &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: of}
		of.Host = to.host // to be validated: endpoints have it
		defer func() { of.Host = "" }()
	case *networking.ReadinessProbe_TcpSocket:
		if m.TcpSocket.GetHost() != "" {
			return nil, false, to, "tcpSocket.host", elsewhere
		}
		field, to.port = "tcpSocket", m.TcpSocket.GetPort()
		check.HealthChecker = &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}}
	case *networking.ReadinessProbe_Grpc:
		field, to.port = "grpc", m.Grpc.GetPort()
		check.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{
			GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{ServiceName: m.Grpc.GetService()},
		}
	case *networking.ReadinessProbe_Exec:
		return nil, false, to, "exec", "clients run no commands on workloads"
	default:
		return nil, false, to, "", "there is nothing to ask"
	}
	if to.port == 0 || to.port > math.MaxUint16 {
		return nil, false, to, field + ".port", "it is no port"
	}
	return check, tls, to, field, model.Refused(check)
}

// probing is the key of the transport socket that a health check uses instead of that of requests.
const probing = "probe"

// apply has a cluster check its endpoints, with the socket of its requests only if these use mutual TLS of the mesh, which workloads may
// insist on. It comes last: what it adds to the cluster's transport sockets has to be the first of them.
func (h *health) apply(c *clusterv3.Cluster, tls *networking.ClientTLSSettings, found *model.Findings) {
	if h == nil {
		return
	}
	if c.GetType() == clusterv3.Cluster_ORIGINAL_DST {
		for g := range h.targets {
			found.Note(model.Place{Of: g.Key, Field: "spec.probe"}, "connections of cluster %s go to their original address, unchecked", c.GetName())
		}
		return
	}
	check := proto.CloneOf(h.check)
	c.HealthChecks = []*corev3.HealthCheck{check}
	if c.GetCommonLbConfig().GetHealthyPanicThreshold() == nil {
		c.CommonLbConfig.HealthyPanicThreshold = &typev3.Percent{} // endpoints that fail get nothing, however many they are
	}
	if !h.tls && !CanOriginate(tls) {
		return
	}
	socket := &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.raw_buffer",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: model.ToAny(&rawv3.RawBuffer{})},
	}
	if h.tls {
		socket = transportSocket(&tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{}})
	}
	criteria := &structpb.Struct{Fields: map[string]*structpb.Value{probing: structpb.NewBoolValue(true)}}
	check.TransportSocketMatchCriteria = criteria
	c.TransportSocketMatches = slices.Insert(c.GetTransportSocketMatches(), 0,
		&clusterv3.Cluster_TransportSocketMatch{Name: probing, Match: criteria, TransportSocket: socket})
}

// append appends how to check an endpoint, as a field of Endpoint.
func (h *health) append(b []byte, e *model.Endpoint) []byte {
	if h == nil {
		return b
	}
	return appendMessage(b, 2, func(b []byte) []byte {
		to, checked := h.targets[e.Group]
		if !checked || strings.HasPrefix(e.Address, UnixPrefix) {
			return protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), 1) // disable_active_health_check
		}
		return appendString(appendUint32(b, 1, to.port), 2, cmp.Or(to.host, model.HostPort(e.Address, to.port)))
	})
}
