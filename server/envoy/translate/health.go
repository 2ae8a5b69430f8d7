package translate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
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

// health is the health check of a cluster's endpoints. A cluster has a single check, that of the oldest WorkloadGroup
// among its endpoints. It checks only endpoints of this group, and of groups with a probe that differs only in port and
// Host header. nil is no check.
type health struct {
	probe
	groups map[*model.WorkloadGroup]probe // the groups with checked endpoints
}

// probe is a health check, with its settings for the endpoints of a group.
type probe struct {
	check *corev3.HealthCheck
	tls   bool // without verification of the certificate
	port  uint32
	host  string // empty for the address
}

// buildHealthCheck returns the health check of the cluster of a port or subset, and adds findings about probes that it
// leaves out.
func (t *Translation) buildHealthCheck(
	port *model.Port, subset *networking.Subset, policy *networking.TrafficPolicy, client model.Profile,
) (result *health) {
	if client.Role == model.Proxyless {
		return nil // gRPC clients have no health checks
	}
	groups := make(map[*model.WorkloadGroup]bool)
	for _, endpoint := range port.Endpoints() {
		if endpoint.Group == nil || endpoint.Group.Spec.GetProbe() == nil || !selects(subset, &endpoint) {
			continue
		}
		if strings.HasPrefix(endpoint.Address, UnixPrefix) {
			t.Findings.Note(model.PlaceIn(endpoint.Group.Key, "spec.probe"), "a socket has no port: %s is not checked",
				endpoint.Address)
		} else {
			groups[endpoint.Group] = true
		}
	}
	var first string
	for _, object := range slices.SortedFunc(maps.Keys(groups), (*model.WorkloadGroup).Compare) {
		check, field, reason := probeOf(object.Spec.GetProbe())
		switch {
		case reason != "":
		case check.check.GetGrpcHealthCheck() != nil && !speaksHTTP2(port, policy):
			reason = port.Owner.FullName() + " has a port that does not speak HTTP/2, which Envoy needs for it"
		case check.tls && model.IsMutual(policy.GetTls()):
			reason = port.Owner.FullName() + " is reached by mutual TLS, within which Envoy cannot probe by HTTPS"
		case check.check != nil && result != nil && (check.tls != result.tls || !proto.Equal(check.check, result.check)):
			field = ""
			reason = port.Owner.FullName() + " is checked as WorkloadGroup " + first + " says, which is older"
		}
		switch {
		case reason != "":
			t.Findings.Note(model.PlaceIn(object.Key, "spec.probe%s", field), "%s: its workloads are not checked", reason)
		case check.check == nil: // package coverage reports it
		case result == nil:
			result = &health{check, map[*model.WorkloadGroup]probe{object: check}}
			first = object.Key.FullName()
		default:
			result.groups[object] = check
		}
	}
	return result
}

func speaksHTTP2(p *model.Port, policy *networking.TrafficPolicy) bool {
	http := policy.GetConnectionPool().GetHttp()
	upgrades := http.GetH2UpgradePolicy() == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE
	return !http.GetUseClientProtocol() && (p.Protocol == model.ProtocolHTTP2 || upgrades)
}

// probeOf returns the health check of a probe. Without one, it returns the field and the reason, unless package
// coverage declares the field.
func probeOf(spec *networking.ReadinessProbe) (result probe, field, reason string) {
	if spec.GetExec() != nil || spec.GetHttpGet().GetHost() != "" || spec.GetTcpSocket().GetHost() != "" {
		return probe{}, "", ""
	}
	seconds := func(n, unset int32) *durationpb.Duration {
		return &durationpb.Duration{Seconds: int64(cmp.Or(n, unset))}
	}
	thresholdOr1 := func(n int32) *wrapperspb.UInt32Value {
		return wrapperspb.UInt32(uint32(cmp.Or(n, 1))) //nolint:gosec // not negative
	}
	result.check = &corev3.HealthCheck{
		Timeout:            seconds(spec.GetTimeoutSeconds(), 1),
		Interval:           seconds(spec.GetPeriodSeconds(), 10),
		NoTrafficInterval:  seconds(spec.GetPeriodSeconds(), 10), // Envoy's own is a minute
		HealthyThreshold:   thresholdOr1(spec.GetSuccessThreshold()),
		UnhealthyThreshold: thresholdOr1(spec.GetFailureThreshold()),
	}
	switch method := spec.GetHealthCheckMethod().(type) {
	case *networking.ReadinessProbe_HttpGet:
		field = ".httpGet"
		result.port = method.HttpGet.GetPort()
		result.tls = method.HttpGet.GetScheme() == "HTTPS"
		check := &corev3.HealthCheck_HttpHealthCheck{
			Path: "/" + strings.TrimPrefix(method.HttpGet.GetPath(), "/"),
			// Istio takes statuses below 400. Envoy counts failures only for retriable statuses.
			ExpectedStatuses:  []*typev3.Int64Range{{Start: http.StatusOK, End: http.StatusBadRequest}},
			RetriableStatuses: []*typev3.Int64Range{{Start: 100, End: http.StatusOK}, {Start: http.StatusBadRequest, End: 600}},
		}
		for _, header := range method.HttpGet.GetHttpHeaders() {
			switch {
			case strings.EqualFold(header.GetName(), "host"):
				result.host = cmp.Or(result.host, header.GetValue())
			case strings.HasPrefix(header.GetName(), ":"):
				return probe{}, ".httpGet.httpHeaders", "Envoy sets " + header.GetName() + " itself"
			default:
				check.RequestHeadersToAdd = append(check.RequestHeadersToAdd, &corev3.HeaderValueOption{Header: &corev3.HeaderValue{
					Key: header.GetName(), Value: strings.ReplaceAll(header.GetValue(), "%", "%%"),
				}})
			}
		}
		result.check.HealthChecker = &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: check}
		check.Host = result.host // only for the validation: endpoints have the host
		defer func() { check.Host = "" }()
	case *networking.ReadinessProbe_TcpSocket:
		field = ".tcpSocket"
		result.port = method.TcpSocket.GetPort()
		result.check.HealthChecker = &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: &corev3.HealthCheck_TcpHealthCheck{}}
	case *networking.ReadinessProbe_Grpc:
		field = ".grpc"
		result.port = method.Grpc.GetPort()
		result.check.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{
			GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{ServiceName: method.Grpc.GetService()},
		}
	default:
		return probe{}, "", "there is nothing to ask"
	}
	if result.port == 0 || result.port > math.MaxUint16 {
		return probe{}, field + ".port", "it is no port"
	}
	return result, field, model.Refused(result.check)
}

// addTo adds the health check to a cluster. Probes use the transport socket of requests only if it has mutual TLS of
// the mesh, which workloads may require. It is the last change of a cluster: the probes' transport socket must be the
// first.
func (h *health) addTo(cluster *clusterv3.Cluster, policy *networking.TrafficPolicy, findings *model.Findings) {
	if h == nil {
		return
	}
	if cluster.GetType() == clusterv3.Cluster_ORIGINAL_DST {
		for group := range h.groups {
			findings.Note(model.PlaceIn(group.Key, "spec.probe"),
				"connections of cluster %s go to their original address, unchecked", cluster.GetName())
		}
		return
	}
	check := proto.CloneOf(h.check)
	cluster.HealthChecks = []*corev3.HealthCheck{check}
	cluster.IgnoreHealthOnHostRemoval = true // a removed endpoint gets no requests, even if it answers probes
	if cluster.GetEdsClusterConfig() != nil {
		cluster.EdsClusterConfig.ServiceName += ";" + h.digest()
	}
	if cluster.GetCommonLbConfig().GetHealthyPanicThreshold() == nil {
		// Failing endpoints get no requests, even if all fail.
		cluster.CommonLbConfig.HealthyPanicThreshold = &typev3.Percent{}
	}
	tls := policy.GetTls()
	proxied := policy.GetProxyProtocol() != nil && !model.IsMutual(tls) && len(cluster.GetTransportSocketMatches()) == 0
	if !h.tls && !CanOriginate(tls) && !proxied {
		return
	}
	socket := plaintextSocket()
	if h.tls {
		socket = transportSocket(&tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{}})
	}
	check.TransportSocketMatchCriteria = &structpb.Struct{
		Fields: map[string]*structpb.Value{"probe": structpb.NewBoolValue(true)},
	}
	cluster.TransportSocketMatches = slices.Insert(cluster.GetTransportSocketMatches(), 0,
		&clusterv3.Cluster_TransportSocketMatch{
			Name: "probe", Match: check.GetTransportSocketMatchCriteria(), TransportSocket: socket,
		})
}

// digest is part of the name of the endpoints. An endpoint with a changed check gets no requests for a period. So a
// changed check makes another cluster, with its own endpoints, which Envoy uses after their first check.
func (h *health) digest() string {
	var digest model.Digest
	digest.Text(string(model.MustMarshal(h.check)))
	for _, g := range slices.SortedFunc(maps.Keys(h.groups), (*model.WorkloadGroup).Compare) {
		digest.Object(g.Key)
		digest.Number(int64(h.groups[g].port))
		digest.Text(h.groups[g].host)
	}
	sum := sha256.Sum256(digest)
	return hex.EncodeToString(sum[:8])
}

// append appends the health check of an endpoint, as a field of Endpoint.
func (h *health) append(b []byte, endpoint *model.Endpoint) []byte {
	if h == nil {
		return b
	}
	return appendMessage(b, 2, func(b []byte) []byte {
		settings, checked := h.groups[endpoint.Group]
		if !checked || strings.HasPrefix(endpoint.Address, UnixPrefix) {
			return protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), 1) // disable_active_health_check
		}
		return appendString(appendUint32(b, 1, settings.port), 2,
			cmp.Or(settings.host, model.HostPort(endpoint.Address, settings.port)))
	})
}
