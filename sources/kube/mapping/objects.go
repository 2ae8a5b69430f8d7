package mapping

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unique"
)

// The types here have what the mapping reads of Kubernetes' objects. Those of k8s.io/api hold several times as much in memory.

// Service is one of v1.
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

// Intern lets go of texts that other Services have, too, and of an only family, which says nothing.
func (s *Service) Intern() {
	if s.Spec.Type = unique.Make(s.Spec.Type).Value(); len(s.Spec.IPFamilies) == 1 {
		s.Spec.IPFamilies = nil
	}
	for i, p := range s.Spec.Ports {
		s.Spec.Ports[i].Name, s.Spec.Ports[i].Protocol = unique.Make(p.Name).Value(), unique.Make(p.Protocol).Value()
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

// Endpoints are those of a Slice. Clusters have many: they are held in little space.
type Endpoints struct {
	Pods      []string // namespace/name by place; empty if one is no Pod. Nil if nobody reads accounts
	addresses string   // by place, between commas, the first: those of an endpoint are equivalent, and kube-proxy calls that
	places    []unique.Handle[place]
}

// place is where an endpoint is, and how it is: many endpoints have the same.
type place struct {
	NodeName, Zone string
	state          state
}

// UnmarshalJSON reads them.
func (all *Endpoints) UnmarshalJSON(text []byte) error {
	var read []struct {
		place
		Addresses  []string
		TargetRef  struct{ Kind, Namespace, Name string }
		Conditions struct{ Ready, Serving, Terminating *bool }
	}
	err := json.Unmarshal(text, &read)
	addresses := make([]string, len(read))
	*all = Endpoints{Pods: make([]string, len(read)), places: make([]unique.Handle[place], len(read))}
	for i, e := range read {
		addresses[i] = strings.ReplaceAll(append(e.Addresses, "")[0], ",", " ") // which is as wrong
		if e.TargetRef.Kind == "Pod" {
			all.Pods[i] = e.TargetRef.Namespace + "/" + e.TargetRef.Name
		}
		switch c := e.Conditions; {
		case c.Ready == nil || *c.Ready:
			e.state = ready
		case (c.Serving == nil || *c.Serving) && c.Terminating != nil && *c.Terminating:
			e.state = draining
		}
		all.places[i] = unique.Make(e.place)
	}
	all.addresses = strings.Join(addresses, ",")
	return err
}

// Pod is one of v1.
type Pod struct {
	Spec struct{ ServiceAccountName string }
}

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
