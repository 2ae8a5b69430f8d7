package mapping

import (
	"cmp"
	"strings"
)

// Meta is what the mapping reads of an object's metadata.
type Meta struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Labels    struct {
		Service  string  `json:"kubernetes.io/service-name"`
		Region   string  `json:"topology.kubernetes.io/region"`
		Zone     string  `json:"topology.kubernetes.io/zone"`
		Subzone  string  `json:"topology.istio.io/subzone"`
		Excluded *string `json:"node.kubernetes.io/exclude-from-external-load-balancers"`
	} `json:"labels"`
	Annotations struct {
		ExportTo string `json:"networking.istio.io/exportTo"`
	} `json:"annotations"`
}

// Service is what the mapping reads of a Service (v1).
type Service struct {
	Meta Meta `json:"metadata"`
	Spec struct {
		Type                     string        `json:"type"`
		ClusterIP                string        `json:"clusterIP"`
		ExternalName             string        `json:"externalName"`
		ExternalTrafficPolicy    string        `json:"externalTrafficPolicy"`
		IPFamilies               []string      `json:"ipFamilies"`
		PublishNotReadyAddresses bool          `json:"publishNotReadyAddresses"`
		Ports                    []ServicePort `json:"ports"`
	} `json:"spec"`
	Status struct {
		LoadBalancer struct {
			Ingress []struct {
				IP       string `json:"ip"`
				Hostname string `json:"hostname"`
			} `json:"ingress"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

// ServicePort is a port of a Service. NodePort is zero if there is none.
type ServicePort struct {
	Name        string  `json:"name"`
	Protocol    string  `json:"protocol"`
	AppProtocol *string `json:"appProtocol"`
	Port        uint32  `json:"port"`
	NodePort    uint32  `json:"nodePort"`
}

// Slice is what the mapping reads of an EndpointSlice (discovery.k8s.io/v1).
type Slice struct {
	Meta        Meta       `json:"metadata"`
	AddressType string     `json:"addressType"`
	Endpoints   []Endpoint `json:"endpoints"`
	Ports       []struct {
		Name     string `json:"name"`
		Protocol string `json:"protocol"`
		Port     uint32 `json:"port"`
	} `json:"ports"`
}

// Endpoint is an endpoint of a Slice.
type Endpoint struct {
	Addresses  []string `json:"addresses"`
	NodeName   string   `json:"nodeName"`
	Zone       string   `json:"zone"`
	Conditions struct {
		Ready       *bool `json:"ready"`
		Serving     *bool `json:"serving"`
		Terminating *bool `json:"terminating"`
	} `json:"conditions"`
}

// Service returns the name of the Service of a slice, in the slice's namespace; empty if it has none.
func (s *Slice) Service() string { return s.Meta.Labels.Service }

// Node is what the mapping reads of a Node (v1).
type Node struct {
	Meta   Meta `json:"metadata"`
	Status struct {
		Addresses  []struct{ Type, Address string }
		Conditions []struct{ Type, Status string }
	} `json:"status"`
}

// callable reports whether load balancers outside the cluster send requests to a node.
func (n *Node) callable() bool {
	ready := false
	for _, c := range n.Status.Conditions {
		ready = ready || c.Type == "Ready" && c.Status == "True"
	}
	return ready && n.Meta.Labels.Excluded == nil
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
