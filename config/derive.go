package config

// Derive has the settings of what is made of objects of Gateway API. What is zero has the default of package derive.
type Derive struct {
	// Domain of the hosts of Services. Default: domainSuffix of the source, else cluster.local.
	DomainSuffix string `json:"domainSuffix,omitempty"`
	// Classes of the Gateways that are taken. Default: istio, and those of GatewayClasses with the controller istio.io/gateway-controller.
	GatewayClasses []string `json:"gatewayClasses,omitempty" reading:"set"`
	// All Services of the cluster are read: a backend that is none of them is reported, and the proxies of a Gateway are those that its
	// Service selects.
	AllServices bool `json:"allServices,omitempty"`
}
