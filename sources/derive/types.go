package derive

import (
	stdjson "encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types below are the specs of Gateway API 1.5, whose documentation says what the fields mean, without those of which nothing is made.

type gatewayClassSpec struct {
	ControllerName string `json:"controllerName"`
}

type gatewaySpec struct {
	GatewayClassName string     `json:"gatewayClassName"`
	Listeners        []listener `json:"listeners"`
	Addresses        []struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	} `json:"addresses"`
	TLS *struct {
		Frontend any `json:"frontend"` // checks of clients
	} `json:"tls"`
	AllowedListeners *struct {
		Namespaces *namespaces `json:"namespaces"`
	} `json:"allowedListeners"`
}

type listenerSetSpec struct {
	ParentRef parentRef  `json:"parentRef"`
	Listeners []listener `json:"listeners"`
}

type listener struct {
	Name          string       `json:"name"`
	Hostname      string       `json:"hostname"`
	Port          uint32       `json:"port"`
	Protocol      string       `json:"protocol"`
	TLS           *listenerTLS `json:"tls"`
	AllowedRoutes *struct {
		Namespaces *namespaces `json:"namespaces"`
		Kinds      []struct {
			Group *string `json:"group"`
			Kind  string  `json:"kind"`
		} `json:"kinds"`
	} `json:"allowedRoutes"`
}

type listenerTLS struct {
	Mode            string            `json:"mode"`
	CertificateRefs []reference       `json:"certificateRefs"`
	Options         map[string]string `json:"options"`
}

type namespaces struct {
	From     string                `json:"from"`
	Selector *metav1.LabelSelector `json:"selector"`
}

// reference names an object; what is left out has a default that depends on the place.
type reference struct {
	Group     *string `json:"group"`
	Kind      *string `json:"kind"`
	Name      string  `json:"name"`
	Namespace string  `json:"namespace"`
}

type parentRef struct {
	reference
	SectionName string `json:"sectionName"`
	Port        uint32 `json:"port"`
}

type backendRef struct {
	reference
	Port    uint32   `json:"port"`
	Weight  *int32   `json:"weight"`
	Filters []filter `json:"filters"`
}

// routeSpec is that of each kind of route.
type routeSpec struct {
	ParentRefs []parentRef `json:"parentRefs"`
	Hostnames  []string    `json:"hostnames"`
	Rules      []rule      `json:"rules"`
}

type rule struct {
	Name        string       `json:"name"`
	Matches     []match      `json:"matches"`
	Filters     []filter     `json:"filters"`
	BackendRefs []backendRef `json:"backendRefs"`
	Timeouts    *struct {
		Request        string `json:"request"`
		BackendRequest string `json:"backendRequest"`
	} `json:"timeouts"`
	Retry *struct {
		Codes    []int  `json:"codes"`
		Attempts *int32 `json:"attempts"`
		Backoff  string `json:"backoff"`
	} `json:"retry"`
}

type match struct {
	Path *struct {
		Type  string  `json:"type"`
		Value *string `json:"value"`
	} `json:"path"`
	Headers     []valueMatch `json:"headers"`
	QueryParams []valueMatch `json:"queryParams"`
	Method      *method      `json:"method"`
}

type valueMatch struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// method is that of HTTP, which is a text, or that of gRPC.
type method struct {
	HTTP string `json:"-"`

	Type    string `json:"type"`
	Service string `json:"service"`
	Method  string `json:"method"`
}

// UnmarshalJSON reads either.
func (m *method) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		return stdjson.Unmarshal(text, &m.HTTP)
	}
	type plain method
	if err := stdjson.Unmarshal(text, (*plain)(m)); err != nil {
		return fmt.Errorf("method: %w", err)
	}
	return nil
}

type filter struct {
	Type                   string        `json:"type"`
	RequestHeaderModifier  *headerFilter `json:"requestHeaderModifier"`
	ResponseHeaderModifier *headerFilter `json:"responseHeaderModifier"`
	RequestMirror          *struct {
		BackendRef backendRef `json:"backendRef"`
		Percent    *int32     `json:"percent"`
		Fraction   *struct {
			Numerator   int32  `json:"numerator"`
			Denominator *int32 `json:"denominator"`
		} `json:"fraction"`
	} `json:"requestMirror"`
	RequestRedirect *struct {
		Scheme     string        `json:"scheme"`
		Hostname   string        `json:"hostname"`
		Path       *pathModifier `json:"path"`
		Port       uint32        `json:"port"`
		StatusCode uint32        `json:"statusCode"`
	} `json:"requestRedirect"`
	URLRewrite *struct {
		Hostname string        `json:"hostname"`
		Path     *pathModifier `json:"path"`
	} `json:"urlRewrite"`
	CORS *struct {
		AllowOrigins     []string `json:"allowOrigins"`
		AllowCredentials bool     `json:"allowCredentials"`
		AllowMethods     []string `json:"allowMethods"`
		AllowHeaders     []string `json:"allowHeaders"`
		ExposeHeaders    []string `json:"exposeHeaders"`
		MaxAge           int64    `json:"maxAge"`
	} `json:"cors"`
}

type headerFilter struct {
	Set    []header `json:"set"`
	Add    []header `json:"add"`
	Remove []string `json:"remove"`
}

type header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type pathModifier struct {
	Type               string `json:"type"`
	ReplaceFullPath    string `json:"replaceFullPath"`
	ReplacePrefixMatch string `json:"replacePrefixMatch"`
}

type grantSpec struct {
	From []struct {
		Group     string `json:"group"`
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
	} `json:"from"`
	To []struct {
		Group string `json:"group"`
		Kind  string `json:"kind"`
		Name  string `json:"name"`
	} `json:"to"`
}

type policyTarget struct {
	Group       string `json:"group"`
	Kind        string `json:"kind"`
	Name        string `json:"name"`
	SectionName string `json:"sectionName"`
}

type tlsPolicySpec struct {
	TargetRefs []policyTarget `json:"targetRefs"`
	Validation struct {
		CACertificateRefs       []reference `json:"caCertificateRefs"`
		WellKnownCACertificates *string     `json:"wellKnownCACertificates"`
		Hostname                string      `json:"hostname"`
		SubjectAltNames         []struct {
			Type     string `json:"type"`
			Hostname string `json:"hostname"`
			URI      string `json:"uri"`
		} `json:"subjectAltNames"`
	} `json:"validation"`
}

type trafficPolicySpec struct {
	TargetRefs      []policyTarget `json:"targetRefs"`
	RetryConstraint *struct {
		Budget *struct {
			Percent *float64 `json:"percent"`
		} `json:"budget"`
		MinRetryRate *struct {
			Count *uint32 `json:"count"`
		} `json:"minRetryRate"`
	} `json:"retryConstraint"`
}

type serviceSpec struct {
	Selector map[string]string `json:"selector"`
	Ports    []struct {
		Name string `json:"name"`
		Port uint32 `json:"port"`
	} `json:"ports"`
}

type serviceEntrySpec struct {
	Hosts []string `json:"hosts"`
}
