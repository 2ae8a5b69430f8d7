package resource

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// The products of an object are the resources that Envoys get for it: routes for each host and gateway, or endpoints
// for each host and port. This file estimates their memory.

// MaxProducts is the default limit of the memory, in bytes, of the products of one object. All objects of a namespace
// together have the same limit, see Multiplied. A ServiceEntry of 1,000 hosts and 2 ports has 36 MB of products.
const MaxProducts = 256 << 20

// The memory of one product at its peak, in bytes, with its share of decoded and encoded resources. The size of the
// fields that each product repeats counts multiplier times.
const (
	routeCost    = 4 << 10
	sharedCost   = 2 << 10  // of a route for each further host: it is made once
	portCost     = 16 << 10 // of a host: cluster, endpoints, virtual host, listener
	addressCost  = 4 << 10
	endpointCost = 600
	patchCost    = 128 << 10 // at the listeners, clusters or routes that it matches
	multiplier   = 4
	chains       = 16 // filter chains, or ports of a host, that a policy is assumed to cover
	// small is a document without products of the default size.
	small = 1 << 10
)

// CheckProducts returns an error of type Errors if the estimated products of a resource exceed most, in bytes of
// memory. Zero stands for the default, a negative number for no limit.
func CheckProducts(resource *Resource, most int64) error {
	if most == 0 {
		most = MaxProducts
	}
	if most < 0 || len(resource.body) < small && most >= MaxProducts {
		return nil
	}
	spec, err := resource.Spec()
	if err != nil {
		return nil //nolint:nilerr // which Validate reports
	}
	if bytes, factors := Products(spec); bytes > most {
		return Errors{errorOf(resource, "%s are estimated at %d MB of memory: split the object, or raise "+
			"limits.productBytes, which is %d", factors, bytes>>20, most)}
	}
	return nil
}

// Products estimates the memory, in bytes, of the resources that one client gets for a spec, and returns the factors as
// text.
func Products(spec proto.Message) (bytes int64, factors string) {
	size := int64(proto.Size(spec))
	switch typed := spec.(type) {
	case *networking.VirtualService:
		hosts, gateways := int64(len(typed.GetHosts())), int64(max(len(typed.GetGateways()), 1))
		routes, first, further := virtualServiceProducts(typed)
		return gateways * (first + max(hosts-1, 0)*further),
			fmt.Sprintf("%d hosts × %d routes × %d gateways", hosts, routes, gateways)
	case *networking.ServiceEntry:
		hosts, ports := int64(len(typed.GetHosts())), int64(len(typed.GetPorts()))
		return hosts * ports * portProducts(typed), fmt.Sprintf("%d hosts × %d ports × (%d endpoints + %d addresses)",
			hosts, ports, len(typed.GetEndpoints()), len(typed.GetAddresses()))
	case *networking.DestinationRule:
		subsets := int64(len(typed.GetSubsets()))
		bytes = (1+subsets)*(portCost+multiplier*int64(proto.Size(typed.GetTrafficPolicy()))) +
			multiplier*sizeOf(typed.GetSubsets())
		return chains * bytes, fmt.Sprintf("%d subsets × %d ports", subsets, chains)
	case *networking.EnvoyFilter:
		patches := int64(len(typed.GetConfigPatches()))
		return patches*patchCost + chains*multiplier*size, fmt.Sprintf("%d patches", patches)
	case *networking.Gateway:
		servers := int64(len(typed.GetServers()))
		return servers*portCost + multiplier*size, fmt.Sprintf("%d servers", servers)
	case *networking.Sidecar:
		listeners := int64(len(typed.GetEgress()) + len(typed.GetIngress()))
		return listeners*portCost + multiplier*size, fmt.Sprintf("%d listeners", listeners)
	}
	return portCost + chains*(endpointCost+multiplier*size), fmt.Sprintf("%d bytes × %d filter chains", size, chains)
}

// Multiplied estimates the part of the products of an object, in bytes, that exists only because it has several hosts
// and ports: an object for each host and port would not have it. It counts against the limit of a namespace. The routes
// of a delegate multiply by the routes that delegate to it; lookup returns the object of a key, or nil.
func Multiplied(resource *Resource, lookup func(Key) *Resource) int64 {
	if resource == nil || resource.Key().Kind != ServiceEntry && resource.Key().Kind != VirtualService ||
		CountFields(resource.body, hostsField) < 2 && (resource.Key().Kind == ServiceEntry || !delegates(resource.body)) {
		return 0
	}
	spec, err := resource.Spec()
	if err != nil {
		return 0
	}
	switch typed := spec.(type) {
	case *networking.VirtualService:
		hosts, gateways := int64(len(typed.GetHosts())), int64(max(len(typed.GetGateways()), 1))
		_, _, further := virtualServiceProducts(typed)
		return (further*max(hosts-1, 0) + delegated(typed, resource.Key().Namespace, lookup)*hosts) * gateways
	case *networking.ServiceEntry:
		hosts, ports := int64(len(typed.GetHosts())), int64(len(typed.GetPorts()))
		return max(0, (hosts-1)*ports*portProducts(typed)-(hosts+ports)*portCost)
	}
	return 0
}

// Selection returns the workload selector of a ServiceEntry, and the number of endpoints that it makes of one workload.
// It returns nil for other objects.
func Selection(resource *Resource) (labels map[string]string, endpoints int64) {
	if resource == nil || resource.Key().Kind != ServiceEntry || CountFields(resource.body, selectorField) == 0 {
		return nil, 0
	}
	spec, err := resource.Spec()
	if err != nil {
		return nil, 0
	}
	s := spec.(*networking.ServiceEntry)
	return s.GetWorkloadSelector().GetLabels(), int64(len(s.GetHosts())) * int64(len(s.GetPorts()))
}

// Workload returns the labels of a WorkloadEntry, or nil, and the bytes of its endpoint.
func Workload(resource *Resource) (labels map[string]string, bytes int64) {
	if resource == nil || resource.Key().Kind != WorkloadEntry {
		return nil, 0
	}
	spec, err := resource.Spec()
	if err != nil {
		return nil, 0
	}
	labels = maps.Clone(resource.Labels())
	if labels == nil {
		labels = make(map[string]string)
	}
	for name, value := range spec.(*networking.WorkloadEntry).GetLabels() {
		labels[name] = cmp.Or(labels[name], value)
	}
	return labels, endpointCost + int64(len(resource.body))
}

// Delegates returns the keys of the delegates of a VirtualService.
func Delegates(resource *Resource) (keys []Key) {
	if resource == nil || resource.Key().Kind != VirtualService || !delegates(resource.body) {
		return nil
	}
	spec, err := resource.Spec()
	if err != nil {
		return nil
	}
	for _, route := range spec.(*networking.VirtualService).GetHttp() {
		if d := route.GetDelegate(); d != nil {
			keys = append(keys, DelegateKey(d, resource.Key().Namespace))
		}
	}
	return keys
}

// DelegateKey returns the key of the VirtualService that a route of a namespace names as its delegate.
func DelegateKey(d *networking.Delegate, namespace string) Key {
	return Key{Kind: VirtualService, Namespace: cmp.Or(d.GetNamespace(), namespace), Name: d.GetName()}
}

// delegated returns the bytes of the routes that a VirtualService has from its delegates, for one host.
func delegated(s *networking.VirtualService, namespace string, lookup func(Key) *Resource) (bytes int64) {
	sizes := make(map[Key]int64)
	for _, route := range s.GetHttp() {
		delegate := route.GetDelegate()
		if delegate == nil {
			continue
		}
		key := DelegateKey(delegate, namespace)
		size, cached := sizes[key]
		if !cached {
			if r := lookup(key); r != nil {
				if spec, err := r.Spec(); err == nil {
					_, size, _ = virtualServiceProducts(spec.(*networking.VirtualService))
				}
			}
			sizes[key] = size
		}
		bytes += size * int64(max(len(route.GetMatch()), 1))
	}
	return bytes
}

// The numbers of fields in the encoded specs.
const (
	hostsField    = 1  // of a ServiceEntry or VirtualService
	httpField     = 3  // of a VirtualService
	selectorField = 9  // of a ServiceEntry
	delegateField = 20 // of an HTTPRoute
)

// CountFields counts the fields of a number in an encoded message, up to the first error.
func CountFields(body []byte, number protowire.Number) (count int) {
	for range fields(body, number) {
		count++
	}
	return count
}

// fieldSeed is the seed of the hashes of CountDistinctFields.
var fieldSeed = maphash.MakeSeed()

// CountDistinctFields is CountFields for different values.
func CountDistinctFields(body []byte, number protowire.Number) int {
	hashes := make(map[uint64]struct{})
	for value := range fields(body, number) {
		hashes[maphash.Bytes(fieldSeed, value)] = struct{}{}
	}
	return len(hashes)
}

// delegates reports whether an encoded VirtualService has a route that delegates.
func delegates(body []byte) bool {
	for route := range fields(body, httpField) {
		if value, size := protowire.ConsumeBytes(route); size > 0 && CountFields(value, delegateField) > 0 {
			return true
		}
	}
	return false
}

// fields yields the encoded values of all fields of a number, until the first error.
func fields(body []byte, number protowire.Number) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(body) > 0 {
			current, kind, size := protowire.ConsumeTag(body)
			if size < 0 {
				return
			}
			value := protowire.ConsumeFieldValue(current, kind, body[size:])
			if value < 0 || current == number && !yield(body[size:size+value]) {
				return
			}
			body = body[size+value:]
		}
	}
}

// portProducts returns the bytes of one port of one host.
func portProducts(entry *networking.ServiceEntry) int64 {
	names := int64(0)
	for _, name := range entry.GetSubjectAltNames() {
		names += int64(len(name))
	}
	return portCost + int64(len(entry.GetAddresses()))*addressCost + int64(len(entry.GetEndpoints()))*endpointCost +
		multiplier*(sizeOf(entry.GetEndpoints())+names)
}

// virtualServiceProducts returns the number of routes of a VirtualService, and their bytes for the first host and for
// each further one.
func virtualServiceProducts(s *networking.VirtualService) (routes, first, further int64) {
	http, httpBytes := routeProducts(s.GetHttp(), (*networking.HTTPRoute).GetMatch)
	tls, tlsBytes := routeProducts(s.GetTls(), (*networking.TLSRoute).GetMatch)
	tcp, tcpBytes := routeProducts(s.GetTcp(), (*networking.TCPRoute).GetMatch)
	first = httpBytes + tlsBytes + tcpBytes
	return http + tls + tcp, first, first - http*(routeCost-sharedCost)
}

func routeProducts[R, M proto.Message](routes []R, matchesOf func(R) []M) (count, bytes int64) {
	for _, r := range routes {
		products, matches := int64(max(len(matchesOf(r)), 1)), sizeOf(matchesOf(r))
		bytes += products*(routeCost+multiplier*(int64(proto.Size(r))-matches)) + multiplier*matches
		count += products
	}
	return count, bytes
}

func sizeOf[M proto.Message](list []M) (size int64) {
	for _, m := range list {
		size += int64(proto.Size(m))
	}
	return size
}
