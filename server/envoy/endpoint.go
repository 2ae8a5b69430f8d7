package envoy

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
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

const unixPrefix = "unix://"

// localityMembers is the number of the field of LocalityLbEndpoints that has its endpoints.
const localityMembers protowire.Number = 2

// assignment returns the endpoints of a port, or of a subset of it, for a cluster that finds them in this way: only names are resolved, and only
// addresses need not be. A cluster of kind LOGICAL_DNS has one endpoint. Localities are in order of their name.
//
// gRPC clients heed the weights of localities, and not those of endpoints within one. To them, endpoints of one locality and different
// weights are in different sub-zones of it.
//
// The endpoints of a locality are encoded already, and stand in the message as fields that are unknown to it: decodedAssignment decodes them.
func (p *port) assignment(cluster string, subset *networking.Subset, kind clusterv3.Cluster_DiscoveryType, placed placement, found *findings) *endpointv3.ClusterLoadAssignment {
	type place struct {
		locality
		priority int
	}
	type members struct {
		encoded []byte // as fields of LocalityLbEndpoints
		weight  uint64
	}
	byPlace := make(map[place]*members)
	endpoints := p.endpoints()
	var last *networking.WorkloadEntry
	var in *members // of the last endpoint, and of the next ones with the same WorkloadEntry
	var details, host []byte
	for i := range endpoints {
		e := &endpoints[i]
		if !has(subset, e) {
			continue
		}
		if !e.fits(kind) {
			if kind == clusterv3.Cluster_EDS && !strings.HasPrefix(e.address, unixPrefix) {
				found.note(e.place().in("address"), "%q is no address, and names are resolved for services of resolution DNS only: it is no endpoint of ServiceEntry %s",
					e.address, e.owner.FullName())
			}
			continue
		}
		if kind == clusterv3.Cluster_LOGICAL_DNS && len(byPlace) > 0 {
			why := "with resolution DNS_ROUND_ROBIN there is one endpoint"
			if placed.client.role == proxyless {
				why = "gRPC clients know one endpoint of a service of names"
			}
			found.note(e.place(), "%s: it is none of ServiceEntry %s", why, e.owner.FullName())
			continue
		}
		if e.spec != last {
			l := place{e.locality(), placed.priority(e)}
			if placed.client.role == proxyless {
				l.subZone += fmt.Sprintf("~%d", e.weight())
			}
			if byPlace[l] == nil {
				byPlace[l] = new(members)
			}
			last, in, details = e.spec, byPlace[l], mustMarshal(e.details())
		}
		in.weight += uint64(e.weight())
		host = e.appendHost(host[:0], p)
		in.encoded = protowire.AppendVarint(protowire.AppendTag(in.encoded, localityMembers, protowire.BytesType), uint64(len(host)+len(details)))
		in.encoded = append(append(in.encoded, host...), details...)
	}
	a := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	for _, l := range slices.SortedFunc(maps.Keys(byPlace), func(a, b place) int {
		return cmp.Or(a.compare(b.locality), cmp.Compare(a.priority, b.priority))
	}) {
		in := &endpointv3.LocalityLbEndpoints{
			Locality:            &corev3.Locality{Region: l.region, Zone: l.zone, SubZone: l.subZone},
			LoadBalancingWeight: wrapperspb.UInt32(uint32(min(byPlace[l].weight, math.MaxUint32))), Priority: uint32(l.priority), //nolint:gosec // it is small
		}
		in.ProtoReflect().SetUnknown(byPlace[l].encoded)
		a.Endpoints = append(a.Endpoints, in)
	}
	placed.distribute(a)
	rank(a)
	return a
}

// decodedAssignment returns an assignment whose endpoints are decoded.
func decodedAssignment(a *endpointv3.ClusterLoadAssignment) *endpointv3.ClusterLoadAssignment {
	decoded := new(endpointv3.ClusterLoadAssignment)
	if err := proto.Unmarshal(mustMarshal(a), decoded); err != nil {
		panic(err) // it was encoded here
	}
	return decoded
}

// fits says whether Envoy can use the endpoint in a cluster of the kind: it refuses all of an assignment that has a name where an
// address is wanted.
func (e *endpoint) fits(kind clusterv3.Cluster_DiscoveryType) bool {
	address := e.address
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return fitsSocket(path)
	}
	if kind == clusterv3.Cluster_STRICT_DNS || kind == clusterv3.Cluster_LOGICAL_DNS {
		return address != "" && !strings.Contains(address, "%") // the zone of an address, which Envoy rejects
	}
	return resource.IsAddress(address)
}

// hasNames says whether some endpoint of the port, or of a subset of it, has to be resolved.
func (p *port) hasNames(subset *networking.Subset) bool {
	return slices.ContainsFunc(p.endpoints(), func(e endpoint) bool {
		return has(subset, &e) && e.fits(clusterv3.Cluster_LOGICAL_DNS) && !e.fits(clusterv3.Cluster_EDS)
	})
}

// maxSocketPath is how long the path of a Unix socket may be.
const maxSocketPath = 107

func fitsSocket(path string) bool { return path != "" && len(path) <= maxSocketPath }

// appendHost appends where the endpoint serves a port, as fields of LbEndpoint.
func (e *endpoint) appendHost(b []byte, p *port) []byte {
	address := &corev3.Address{}
	if path, ok := strings.CutPrefix(e.address, unixPrefix); ok {
		address.Address = &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}
	} else {
		address.Address = &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: e.address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: e.portFor(p)},
		}}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, &endpointv3.LbEndpoint{
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
	})
	if err != nil {
		panic(err) // as in mustMarshal
	}
	return b
}

// details returns what else clients know of the endpoint. It follows from its WorkloadEntry.
func (e *endpoint) details() *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{
		LoadBalancingWeight: wrapperspb.UInt32(e.weight()),
		Metadata:            istioMetadata(map[string]*structpb.Value{"workload": structpb.NewStringValue(e.identity())}),
	}
}

// portFor returns the port on which the endpoint serves p.
func (e *endpoint) portFor(p *port) uint32 {
	return cmp.Or(e.spec.GetPorts()[p.name], p.target, p.number)
}

// The labels that say of which service and revision a workload is, the most telling first.
var (
	nameLabels     = []string{"service.istio.io/canonical-name", "app.kubernetes.io/name", "app"}
	revisionLabels = []string{"service.istio.io/canonical-revision", "app.kubernetes.io/version", "version"}
)

// clusterID is what istiod says of all that does not come from Kubernetes, and so what telemetry knows.
const clusterID = "Kubernetes"

// identity is what Istio's telemetry reads from an endpoint: workload;namespace;service;revision;cluster.
func (e *endpoint) identity() string {
	name, revision := e.workload, ""
	for _, label := range slices.Backward(nameLabels) {
		if v, ok := e.labels[label]; ok {
			name = v
		}
	}
	for _, label := range slices.Backward(revisionLabels) {
		if v, ok := e.labels[label]; ok && v != "latest" {
			revision = v
		}
	}
	return strings.Join([]string{e.workload, e.namespace, name, revision, clusterID}, ";")
}

const localityLabel = "istio-locality" // with dots, since labels have no slashes

type locality struct{ region, zone, subZone string }

func (l locality) compare(o locality) int {
	return cmp.Or(strings.Compare(l.region, o.region), strings.Compare(l.zone, o.zone), strings.Compare(l.subZone, o.subZone))
}

// locality returns where the endpoint is, which it or its label says as region/zone/subzone.
func (e *endpoint) locality() locality {
	return localityOf(siteText(e.spec, e.labels))
}

func siteText(spec *networking.WorkloadEntry, labels map[string]string) string {
	return cmp.Or(spec.GetLocality(), strings.ReplaceAll(labels[localityLabel], ".", "/"))
}

func localityOf(s string) locality {
	parts := append(strings.SplitN(s, "/", 3), "", "")
	return locality{parts[0], parts[1], parts[2]}
}

// weight is the endpoint's share of the load. None is one.
func (e *endpoint) weight() uint32 { return max(e.spec.GetWeight(), 1) }
