package resource

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// MaxProducts is how much memory, in bytes, the products of one object may take by default. A VirtualService of 500 hosts
// and 200 routes has 420 MB of them.
const MaxProducts = 640 << 20

// The memory of one product at its peak, in bytes, with its share of decoded and encoded resources. The size of the
// fields that each product repeats counts multiplier times.
const (
	routeCost    = 4 << 10
	portCost     = 16 << 10 // of a host: cluster, endpoints, virtual host, listener
	addressCost  = 4 << 10
	endpointCost = 600
	patchCost    = 128 << 10 // at the listeners, clusters or routes that it matches
	multiplier   = 4
	chains       = 16 // filter chains, or ports of a host, to which a policy is assumed to apply
	// small is a document without products of the default size.
	small = 1 << 10
)

// CheckProducts returns an error of type Errors if the estimated products of a resource exceed most, in bytes of memory.
// Zero stands for the default, a negative number for no limit.
func CheckProducts(r *Resource, most int64) error {
	if most == 0 {
		most = MaxProducts
	}
	if most < 0 || len(r.body) < small && most >= MaxProducts {
		return nil
	}
	spec, err := r.Spec()
	if err != nil {
		return nil //nolint:nilerr // which Validate reports
	}
	if bytes, factors := Products(spec); bytes > most {
		return Errors{errorOf(r, "%s are estimated at %d MB of memory: split the object, or raise limits.productBytes, which is %d",
			factors, bytes>>20, most)}
	}
	return nil
}

// Products estimates the memory, in bytes, of what a spec multiplies into for one client, and returns the factors as text.
func Products(spec proto.Message) (bytes int64, factors string) {
	size := int64(proto.Size(spec))
	switch s := spec.(type) {
	case *networking.VirtualService:
		n, hosts, gateways := int64(0), int64(len(s.GetHosts())), int64(max(len(s.GetGateways()), 1))
		add := func(matches int, route, ofMatches int64) {
			products := int64(max(matches, 1))
			bytes, n = bytes+products*(routeCost+multiplier*(route-ofMatches))+multiplier*ofMatches, n+products
		}
		for _, r := range s.GetHttp() {
			add(len(r.GetMatch()), int64(proto.Size(r)), sizeOf(r.GetMatch()))
		}
		for _, r := range s.GetTls() {
			add(len(r.GetMatch()), int64(proto.Size(r)), sizeOf(r.GetMatch()))
		}
		for _, r := range s.GetTcp() {
			add(len(r.GetMatch()), int64(proto.Size(r)), sizeOf(r.GetMatch()))
		}
		return hosts * gateways * bytes, fmt.Sprintf("%d hosts × %d routes × %d gateways", hosts, n, gateways)
	case *networking.ServiceEntry:
		hosts, ports := int64(len(s.GetHosts())), int64(len(s.GetPorts()))
		endpoints, addresses := int64(len(s.GetEndpoints())), int64(len(s.GetAddresses()))
		names := int64(0)
		for _, name := range s.GetSubjectAltNames() {
			names += int64(len(name))
		}
		bytes = portCost + addresses*addressCost + endpoints*endpointCost + multiplier*(sizeOf(s.GetEndpoints())+names)
		return hosts * ports * bytes, fmt.Sprintf("%d hosts × %d ports × (%d endpoints + %d addresses)", hosts, ports, endpoints, addresses)
	case *networking.DestinationRule:
		subsets := int64(len(s.GetSubsets()))
		bytes = (1+subsets)*(portCost+multiplier*int64(proto.Size(s.GetTrafficPolicy()))) + multiplier*sizeOf(s.GetSubsets())
		return chains * bytes, fmt.Sprintf("%d subsets × %d ports", subsets, chains)
	case *networking.EnvoyFilter:
		patches := int64(len(s.GetConfigPatches()))
		return patches*patchCost + chains*multiplier*size, fmt.Sprintf("%d patches", patches)
	case *networking.Gateway:
		servers := int64(len(s.GetServers()))
		return servers*portCost + multiplier*size, fmt.Sprintf("%d servers", servers)
	case *networking.Sidecar:
		listeners := int64(len(s.GetEgress()) + len(s.GetIngress()))
		return listeners*portCost + multiplier*size, fmt.Sprintf("%d listeners", listeners)
	}
	return portCost + chains*(endpointCost+multiplier*size), fmt.Sprintf("%d bytes × %d filter chains", size, chains)
}

func sizeOf[M proto.Message](list []M) (size int64) {
	for _, m := range list {
		size += int64(proto.Size(m))
	}
	return size
}
