package mapping

import (
	"cmp"
	"slices"
	"strings"
)

// The types here have what the mapping reads of Kubernetes' objects. Those of k8s.io/api hold several times as much in memory.

// Meta is what the mapping reads of an object's metadata.
type Meta struct {
	Namespace, Name string
	Labels          struct {
		Service  string  `json:"kubernetes.io/service-name"`
		Region   string  `json:"topology.kubernetes.io/region"`
		Zone     string  `json:"topology.kubernetes.io/zone"`
		Subzone  string  `json:"topology.istio.io/subzone"`
		Excluded *string `json:"node.kubernetes.io/exclude-from-external-load-balancers"`
	}
	Annotations struct {
		ExportTo string `json:"networking.istio.io/exportTo"`
	}
}

// Service is one of v1.
type Service struct {
	Meta Meta `json:"metadata"`
	Spec struct {
		Type, ExternalName, ExternalTrafficPolicy string

		IPFamilies               []string
		PublishNotReadyAddresses bool
		Ports                    []ServicePort
	}
	Status struct {
		LoadBalancer struct {
			Ingress []struct{ IP, Hostname string }
		}
	}
}

// ServicePort is a port of a Service. NodePort is zero if there is none.
type ServicePort struct {
	Name, Protocol string
	AppProtocol    *string
	Port, NodePort uint32
}

// Slice is an EndpointSlice of discovery.k8s.io/v1.
type Slice struct {
	Meta        Meta `json:"metadata"`
	AddressType string
	Endpoints   []Endpoint
	Ports       []struct {
		Name, Protocol string
		Port           uint32
	}
}

// Endpoint is an endpoint of a Slice.
type Endpoint struct {
	Addresses      []string
	NodeName, Zone string
	TargetRef      *Target // the Pod; nil if accounts are not read, or there is none
	Conditions     struct{ Ready, Serving, Terminating *bool }
}

// Target names an object.
type Target struct{ Kind, Namespace, Name string }

// Pod is one of v1.
type Pod struct {
	Meta Meta `json:"metadata"`
	Spec struct{ ServiceAccountName string }
}

// Service returns the name of the Service of a slice, in the slice's namespace; empty if it has none.
func (s *Slice) Service() string { return s.Meta.Labels.Service }

// portOf returns the number that endpoints have of a port of the Service; zero if they do not have it.
func (s *Slice) portOf(of ServicePort) uint32 {
	for _, p := range s.Ports {
		if p.Name == of.Name && cmp.Or(p.Protocol, "TCP") == cmp.Or(of.Protocol, "TCP") {
			return p.Port
		}
	}
	return 0
}

// Node is one of v1.
type Node struct {
	Meta   Meta `json:"metadata"`
	Status struct {
		Addresses  []struct{ Type, Address string }
		Conditions []struct{ Type, Status string }
	}
}

// callable reports whether load balancers outside the cluster send requests to a node.
func (n *Node) callable() bool {
	return n.Meta.Labels.Excluded == nil &&
		slices.Contains(n.Status.Conditions, struct{ Type, Status string }{"Ready", "True"}) && n.address() != ""
}

// address returns the first external address of a node, else the first internal one.
func (n *Node) address() string {
	for _, kind := range []string{"ExternalIP", "InternalIP"} {
		for _, a := range n.Status.Addresses {
			if a.Type == kind {
				return a.Address
			}
		}
	}
	return ""
}

// locality returns region/zone/subzone, up to the first that is unknown. A node's labels come before region and zone.
func (n *Node) locality(region, zone string) string {
	subzone := ""
	if n != nil {
		region, zone, subzone = cmp.Or(n.Meta.Labels.Region, region), cmp.Or(n.Meta.Labels.Zone, zone), n.Meta.Labels.Subzone
	}
	known, _, _ := strings.Cut("/"+region+"/"+zone+"/"+subzone+"/", "//")
	return strings.Trim(known, "/")
}
