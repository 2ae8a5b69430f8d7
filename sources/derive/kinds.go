package derive

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/json"

	"tributary/resource"
)

// Kind is a kind of objects that a Set takes.
type Kind struct {
	Group      string   // of the API; empty for that of Kubernetes itself
	Versions   []string // those that are understood, the preferred one first
	Kind       string
	Plural     string
	Namespaced bool
	// Context says that nothing is made of the objects of this kind; others refer to them.
	Context bool

	spec func() any // a new spec; nil if nothing of it is read
}

// Kinds are all kinds that a Set takes.
var Kinds = []Kind{
	gatewayKind("GatewayClass", "gatewayclasses", false, spec[gatewayClassSpec], "v1", "v1beta1"),
	gatewayKind("Gateway", "gateways", true, spec[gatewaySpec], "v1", "v1beta1"),
	gatewayKind("ListenerSet", "listenersets", true, spec[listenerSetSpec], "v1"),
	gatewayKind("HTTPRoute", "httproutes", true, spec[routeSpec], "v1", "v1beta1"),
	gatewayKind("GRPCRoute", "grpcroutes", true, spec[routeSpec], "v1"),
	gatewayKind("TLSRoute", "tlsroutes", true, spec[routeSpec], "v1", "v1alpha3", "v1alpha2"),
	gatewayKind("TCPRoute", "tcproutes", true, spec[routeSpec], "v1", "v1alpha2"),
	gatewayKind("ReferenceGrant", "referencegrants", true, spec[grantSpec], "v1", "v1beta1"),
	gatewayKind("BackendTLSPolicy", "backendtlspolicies", true, spec[tlsPolicySpec], "v1", "v1alpha3"),
	{
		Group: experimentalGroup, Versions: []string{"v1alpha1"}, Kind: "XListenerSet", Plural: "xlistenersets", Namespaced: true,
		spec: spec[listenerSetSpec],
	},
	{
		Group: experimentalGroup, Versions: []string{"v1alpha1"}, Kind: "XBackendTrafficPolicy", Plural: "xbackendtrafficpolicies",
		Namespaced: true, spec: spec[trafficPolicySpec],
	},
	{
		Group: ingressGroup, Versions: []string{"v1"}, Kind: "Ingress", Plural: "ingresses", Namespaced: true, spec: spec[ingressSpec],
	},
	{
		Group: ingressGroup, Versions: []string{"v1"}, Kind: "IngressClass", Plural: "ingressclasses", Context: true,
		spec: spec[ingressClassSpec],
	},
	{Versions: []string{"v1"}, Kind: "Namespace", Plural: "namespaces", Context: true},
	{Versions: []string{"v1"}, Kind: "Service", Plural: "services", Namespaced: true, Context: true, spec: spec[serviceSpec]},
	{
		Group: istioGroup, Versions: []string{"v1", "v1beta1", "v1alpha3"}, Kind: "ServiceEntry", Plural: "serviceentries",
		Namespaced: true, Context: true, spec: spec[serviceEntrySpec],
	},
}

// The groups of the APIs.
const (
	gatewayGroup      = "gateway.networking.k8s.io"
	experimentalGroup = "gateway.networking.x-k8s.io"
	multiclusterGroup = "multicluster.x-k8s.io"
	istioGroup        = "networking.istio.io"
	ingressGroup      = "networking.k8s.io"
)

func gatewayKind(kind, plural string, namespaced bool, spec func() any, versions ...string) Kind {
	return Kind{Group: gatewayGroup, Versions: versions, Kind: kind, Plural: plural, Namespaced: namespaced, spec: spec}
}

func spec[T any]() any { return new(T) }

var kindByName = func() map[string]*Kind {
	m := make(map[string]*Kind, len(Kinds))
	for i := range Kinds {
		m[Kinds[i].Kind] = &Kinds[i]
	}
	return m
}()

// object is one that was put into a Set. It is not changed afterwards.
type object struct {
	metadata
	kind    string
	origin  resource.Origin
	spec    any // nil if nothing of it is read
	strange []strangeField
}

// strangeField is a field that is not read.
type strangeField struct{ field, what string }

// unread reports whether there is something in a field of the object that is not read.
func (o *object) unread(field string) bool {
	return slices.ContainsFunc(o.strange, func(f strangeField) bool { return strings.HasPrefix(f.field, field+".") })
}

// ignored are fields of specs that say nothing about traffic, or are for deployments, which are not made.
var ignored = []string{"description", "parametersRef", "infrastructure"}

// metadata is what is read of the metadata of an object.
type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	CreationTimestamp time.Time         `json:"creationTimestamp"`
}

func (o *object) name() name { return name{o.Namespace, o.Name} }

func (o *object) key() resource.Key {
	return resource.Key{Kind: resource.Kind(o.kind), Namespace: o.Namespace, Name: o.Name}
}

// decode reads an object of one of Kinds.
func decode(apiVersion, kind string, text []byte) (*object, error) {
	k, ok := kindByName[kind]
	group, version, found := strings.Cut(apiVersion, "/")
	if !found {
		group, version = "", apiVersion
	}
	switch {
	case !ok || group != k.Group:
		return nil, fmt.Errorf("kind %s of %s: nothing is derived from it", kind, apiVersion)
	case !slices.Contains(k.Versions, version):
		return nil, fmt.Errorf("kind %s of %s: this version is not understood; %s are", kind, apiVersion, strings.Join(k.Versions, ", "))
	}
	o := &object{}
	envelope := struct {
		Metadata *metadata `json:"metadata"`
		Spec     any       `json:"spec"`
	}{Metadata: &o.metadata, Spec: new(struct{})}
	if k.spec != nil {
		o.spec = k.spec()
		envelope.Spec = o.spec
	}
	strange, err := json.UnmarshalStrict(text, &envelope)
	switch {
	case err != nil:
		return nil, fmt.Errorf("kind %s of %s: decode: %w", kind, apiVersion, err)
	case o.Name == "":
		return nil, fmt.Errorf("kind %s of %s: metadata.name is missing", kind, apiVersion)
	case k.Context:
		return o, nil // those are Kubernetes' and Istio's own, of which little is read
	}
	for _, e := range strange {
		if what, field, ok := strings.Cut(strings.TrimSuffix(e.Error(), `"`), ` "spec.`); ok && !slices.Contains(ignored, field) {
			o.strange = append(o.strange, strangeField{"spec." + field, what})
		}
	}
	return o, nil
}
