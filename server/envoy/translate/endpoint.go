package translate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// UnixPrefix begins the address of an endpoint that is a Unix socket.
const UnixPrefix = "unix://"

// localityMembers is the field number of the endpoints of LocalityLbEndpoints.
const localityMembers protowire.Number = 2

// assignment returns the endpoints of a port or subset for a cluster of the given discovery type: DNS types take names,
// EDS only addresses. A LOGICAL_DNS cluster has one endpoint. Localities are in order of their name.
//
// gRPC ignores endpoint weights within a locality: each weight gets its own sub-zone.
//
// The endpoints of a locality are already encoded, as unknown fields: decodedAssignment decodes them.
func assignment(
	port *model.Port, cluster string, subset *networking.Subset, kind clusterv3.Cluster_DiscoveryType, placed placement,
	findings *model.Findings,
) *endpointv3.ClusterLoadAssignment {
	type tier struct {
		model.Locality
		priority int
	}
	type localityHosts struct {
		encoded []byte // as fields of LocalityLbEndpoints
		weight  uint64
	}
	byTier := make(map[tier]*localityHosts)
	endpoints := port.Endpoints()
	var last *networking.WorkloadEntry
	var members *localityHosts // of the last endpoint, and of the next endpoints of the same WorkloadEntry
	var details []byte
	for i := range endpoints {
		endpoint := &endpoints[i]
		if !selects(subset, endpoint) {
			continue
		}
		if !fits(endpoint, kind) {
			if kind == clusterv3.Cluster_EDS && !strings.HasPrefix(endpoint.Address, UnixPrefix) {
				findings.Note(endpoint.Place().Subfield("address"),
					"%q is not an IP address, and names are resolved only with resolution DNS: not an endpoint of "+
						"ServiceEntry %s", endpoint.Address, endpoint.Owner.FullName())
			}
			continue
		}
		if kind == clusterv3.Cluster_LOGICAL_DNS && len(byTier) > 0 {
			reason := "with resolution DNS_ROUND_ROBIN there is one endpoint"
			if placed.client.Role == model.Proxyless {
				reason = "gRPC clients use one endpoint of a service whose endpoints are names"
			}
			findings.Note(endpoint.Place(), "%s: ServiceEntry %s does not use it", reason, endpoint.Owner.FullName())
			continue
		}
		if endpoint.Spec != last {
			localityTier := tier{locality(endpoint), placed.priority(endpoint)}
			if placed.client.Role == model.Proxyless {
				localityTier.SubZone += fmt.Sprintf("~%d", weight(endpoint))
			}
			if byTier[localityTier] == nil {
				byTier[localityTier] = new(localityHosts)
			}
			last, members = endpoint.Spec, byTier[localityTier]
			details = appendDetails(details[:0], endpoint, placed.isMutual != nil && placed.isMutual(endpoint))
		}
		members.weight += uint64(weight(endpoint))
		members.encoded = appendMessage(members.encoded, localityMembers, func(b []byte) []byte {
			return append(appendHost(b, endpoint, port, placed.health), details...)
		})
	}
	loadAssignment := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	for _, localityTier := range slices.SortedFunc(maps.Keys(byTier), func(a, b tier) int {
		return cmp.Or(a.Compare(b.Locality), cmp.Compare(a.priority, b.priority))
	}) {
		members := &endpointv3.LocalityLbEndpoints{
			Locality: &corev3.Locality{
				Region: localityTier.Region, Zone: localityTier.Zone,
				SubZone: localityTier.SubZone,
			},
			LoadBalancingWeight: wrapperspb.UInt32(uint32(min(byTier[localityTier].weight, math.MaxUint32))),
			Priority:            uint32(localityTier.priority),
		}
		members.ProtoReflect().SetUnknown(byTier[localityTier].encoded)
		loadAssignment.Endpoints = append(loadAssignment.Endpoints, members)
	}
	placed.distribute(loadAssignment)
	compactPriorities(loadAssignment)
	return loadAssignment
}

// decodedAssignment returns an assignment with decoded endpoints.
func decodedAssignment(a *endpointv3.ClusterLoadAssignment) *endpointv3.ClusterLoadAssignment {
	decoded := new(endpointv3.ClusterLoadAssignment)
	if err := proto.Unmarshal(model.MustMarshal(a), decoded); err != nil {
		panic(err) // it was encoded here
	}
	return decoded
}

// fits reports whether Envoy can use the endpoint in a cluster of the kind: it refuses a whole assignment that has a
// name instead of an address.
func fits(e *model.Endpoint, kind clusterv3.Cluster_DiscoveryType) bool {
	address := e.Address
	if path, ok := strings.CutPrefix(address, UnixPrefix); ok {
		return FitsSocket(path)
	}
	if kind == clusterv3.Cluster_STRICT_DNS || kind == clusterv3.Cluster_LOGICAL_DNS {
		return address != "" && !strings.Contains(address, "%") // the zone of an address, which Envoy rejects
	}
	return resource.IsAddress(address)
}

// hasNames reports whether some endpoint of the port or subset has to be resolved.
func hasNames(p *model.Port, subset *networking.Subset) bool {
	return slices.ContainsFunc(p.Endpoints(), func(e model.Endpoint) bool {
		return selects(subset, &e) && fits(&e, clusterv3.Cluster_LOGICAL_DNS) && !fits(&e, clusterv3.Cluster_EDS)
	})
}

// MaxSocketPath is the maximum length of the path of a Unix socket.
const MaxSocketPath = 107

// FitsSocket reports whether a path can be that of a Unix socket.
func FitsSocket(path string) bool { return path != "" && len(path) <= MaxSocketPath }

// appendHost appends the address and port of the endpoint for a port, and its health check, as fields of LbEndpoint.
// appendHost and appendDetails write the same bytes as the encoder of the message, and faster: endpoints are most of
// the work.
func appendHost(b []byte, endpoint *model.Endpoint, port *model.Port, check *health) []byte {
	return appendMessage(b, 1, func(b []byte) []byte { // endpoint
		return check.append(appendMessage(b, 1, func(b []byte) []byte { // address
			if path, ok := strings.CutPrefix(endpoint.Address, UnixPrefix); ok {
				return appendMessage(b, 2, func(b []byte) []byte { return appendString(b, 1, path) }) // pipe
			}
			return appendMessage(b, 1, func(b []byte) []byte { // socket_address
				return appendUint32(appendString(b, 2, endpoint.Address), 3, endpoint.PortOf(port))
			})
		}), endpoint)
	})
}

// appendDetails appends the "workload" metadata and the weight of the endpoint, as fields of LbEndpoint, and the
// metadata of endpoints with mutual TLS. They follow from its WorkloadEntry.
func appendDetails(b []byte, endpoint *model.Endpoint, authenticated bool) []byte {
	b = appendMessage(b, 3, func(b []byte) []byte { // metadata
		if authenticated {
			b = append(b, socketMatch...)
		}
		return appendMessage(b, 1, func(b []byte) []byte { // an entry of filter_metadata
			return appendMessage(appendString(b, 1, "istio"), 2, func(b []byte) []byte { // its Struct
				return appendMessage(b, 1, func(b []byte) []byte { // an entry of fields
					return appendMessage(appendString(b, 1, "workload"), 2,
						func(b []byte) []byte { return appendString(b, 3, workloadMetadata(endpoint)) })
				})
			})
		})
	})
	return appendMessage(b, 4, func(b []byte) []byte { return appendUint32(b, 1, weight(endpoint)) })
}

// The labels of a workload's service and revision, preferred ones first.
var (
	nameLabels     = []string{"service.istio.io/canonical-name", "app.kubernetes.io/name", "app"}
	revisionLabels = []string{"service.istio.io/canonical-revision", "app.kubernetes.io/version", "version"}
)

// clusterID is istiod's cluster of workloads outside Kubernetes, for telemetry.
const clusterID = "Kubernetes"

// workloadMetadata returns the metadata of Istio's telemetry: workload;namespace;service;revision;cluster.
func workloadMetadata(endpoint *model.Endpoint) string {
	name, revision := endpoint.Workload, ""
	for _, label := range slices.Backward(nameLabels) {
		if v, ok := endpoint.Labels[label]; ok {
			name = v
		}
	}
	for _, label := range slices.Backward(revisionLabels) {
		if v, ok := endpoint.Labels[label]; ok && v != "latest" {
			revision = v
		}
	}
	return strings.Join([]string{endpoint.Workload, endpoint.Namespace, name, revision, clusterID}, ";")
}

// locality returns the endpoint's locality, from its field or its label, as region/zone/subzone.
func locality(e *model.Endpoint) model.Locality {
	return model.LocalityOf(model.LocalityText(e.Spec, e.Labels))
}

// weight is the endpoint's share of the load; 1 if unset.
func weight(e *model.Endpoint) uint32 { return max(e.Spec.GetWeight(), 1) }

// selects reports whether a subset has an endpoint; nil has all.
func selects(subset *networking.Subset, e *model.Endpoint) bool {
	for name, value := range subset.GetLabels() {
		if e.Labels[name] != value {
			return false
		}
	}
	return true
}
