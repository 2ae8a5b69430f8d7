package mapping

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unique"
)

// These types have only the fields of Kubernetes' objects that the mapping reads. The types of k8s.io/api take several
// times as much memory.

// Service is a Service of v1.
type Service struct {
	Meta struct {
		Namespace, Name string
		Annotations     struct {
			ExportTo string `json:"networking.istio.io/exportTo"`
		}
	} `json:"metadata"`
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

// Intern shares equal texts with other Services, and drops a single IP family, which has no effect.
func (s *Service) Intern() {
	s.Spec.Type = unique.Make(s.Spec.Type).Value()
	if len(s.Spec.IPFamilies) == 1 {
		s.Spec.IPFamilies = nil
	}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		port.Name = unique.Make(port.Name).Value()
		port.Protocol = unique.Make(port.Protocol).Value()
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
	Meta struct {
		Name   string
		Labels struct {
			Service string `json:"kubernetes.io/service-name"`
		}
	} `json:"metadata"`
	AddressType string
	Endpoints   Endpoints
	Ports       []ServicePort
}

// Endpoints are the endpoints of a Slice, in a compact form: clusters have many.
type Endpoints struct {
	Pods []string // namespace/name by index; empty if an endpoint is not a Pod. Nil without service accounts
	// addresses has the first address of each endpoint, joined by commas. The addresses of an endpoint are equivalent,
	// and kube-proxy calls the first one.
	addresses string
	places    []unique.Handle[place]
}

// place is the node, zone and state of an endpoint. Many endpoints share it.
type place struct {
	NodeName, Zone string
	state          state
}

// UnmarshalJSON implements json.Unmarshaler.
func (endpoints *Endpoints) UnmarshalJSON(text []byte) error {
	var decoded []struct {
		place
		Addresses  []string
		TargetRef  struct{ Kind, Namespace, Name string }
		Conditions struct{ Ready, Serving, Terminating *bool }
	}
	err := json.Unmarshal(text, &decoded)
	addresses := make([]string, len(decoded))
	*endpoints = Endpoints{Pods: make([]string, len(decoded)), places: make([]unique.Handle[place], len(decoded))}
	for i, endpoint := range decoded {
		addresses[i] = strings.ReplaceAll(append(endpoint.Addresses, "")[0], ",", " ") // invalid with a comma, too
		if endpoint.TargetRef.Kind == "Pod" {
			endpoints.Pods[i] = endpoint.TargetRef.Namespace + "/" + endpoint.TargetRef.Name
		}
		switch c := endpoint.Conditions; {
		case c.Ready == nil || *c.Ready:
			endpoint.state = ready
		case (c.Serving == nil || *c.Serving) && c.Terminating != nil && *c.Terminating:
			endpoint.state = draining
		}
		endpoints.places[i] = unique.Make(endpoint.place)
	}
	endpoints.addresses = strings.Join(addresses, ",")
	return err
}

// Pod is a Pod of v1.
type Pod struct {
	Spec struct{ ServiceAccountName string }
}

// portOf returns the endpoints' number of a Service's port; zero if they do not have the port.
func (s *Slice) portOf(servicePort ServicePort) uint32 {
	for _, port := range s.Ports {
		if port.Name == servicePort.Name && cmp.Or(port.Protocol, "TCP") == cmp.Or(servicePort.Protocol, "TCP") {
			return port.Port
		}
	}
	return 0
}

// Node is a Node of v1.
type Node struct {
	Meta struct {
		Labels struct {
			Region   string  `json:"topology.kubernetes.io/region"`
			Zone     string  `json:"topology.kubernetes.io/zone"`
			Subzone  string  `json:"topology.istio.io/subzone"`
			Excluded *string `json:"node.kubernetes.io/exclude-from-external-load-balancers"`
		}
	} `json:"metadata"`
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
		for _, address := range n.Status.Addresses {
			if address.Type == kind {
				return address.Address
			}
		}
	}
	return ""
}

// locality returns region/zone/subzone, up to the first unknown level. A node's labels take precedence over region and
// zone.
func (n *Node) locality(region, zone string) string {
	subzone := ""
	if n != nil {
		region = cmp.Or(n.Meta.Labels.Region, region)
		zone = cmp.Or(n.Meta.Labels.Zone, zone)
		subzone = n.Meta.Labels.Subzone
	}
	levels, _, _ := strings.Cut("/"+region+"/"+zone+"/"+subzone+"/", "//")
	return strings.Trim(levels, "/")
}
