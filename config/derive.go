package config

// Derive has the settings of deriving objects from Ingresses and Gateway API. Zero values stand for the defaults of
// package derive.
type Derive struct {
	// Domain of the hosts of Services. Default: domainSuffix of the source, else cluster.local.
	DomainSuffix string `json:"domainSuffix,omitempty"`
	// Classes of the Gateways that are taken. Default: istio, and those of GatewayClasses with the controller
	// istio.io/gateway-controller.
	GatewayClasses []string `json:"gatewayClasses,omitempty" reading:"set"`
	// The source has all Services of its cluster: a backend that is none of them is reported, and the proxies of a Gateway
	// are those that its Service selects.
	AllServices bool `json:"allServices,omitempty"`
	// The istiods that read the objects are 1.31 or later: redirects that replace a prefix have prefixRewrite. Envoys
	// understand both forms. Default: false, for istiod up to 1.30.
	PrefixRewrite bool `json:"prefixRewrite,omitempty"`
	// Which Ingresses are taken: STRICT those of the class, DEFAULT also those without one, OFF none. Default: STRICT.
	IngressControllerMode string `json:"ingressControllerMode,omitempty"`
	// Class of Ingresses that needs no IngressClass. Default: istio.
	IngressClass string `json:"ingressClass,omitempty"`
	// Value of the label istio of the gateways that serve Ingresses. Default: ingressgateway.
	IngressSelector string `json:"ingressSelector,omitempty"`
	// Namespace of the Gateways that are made of Ingresses. Default: istio-system.
	IngressNamespace string `json:"ingressNamespace,omitempty"`
}
