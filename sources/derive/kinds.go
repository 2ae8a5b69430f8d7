package derive

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"tributary/resource"
	"tributary/sources"
)

// The groups of the APIs.
const (
	gatewayGroup      = "gateway.networking.k8s.io"
	experimentalGroup = "gateway.networking.x-k8s.io"
	istioGroup        = "networking.istio.io"
	ingressGroup      = "networking.k8s.io"
)

// Kind is a kind of objects that a Set takes.
type Kind struct {
	Group      string // of the API; empty for that of Kubernetes itself
	Kind       string
	Plural     string
	Namespaced bool
	Versions   []string // known versions, the preferred one first
}

// Kinds are all kinds that a Set takes.
var Kinds = []Kind{
	{gatewayGroup, "GatewayClass", "gatewayclasses", false, []string{"v1", "v1beta1"}},
	{gatewayGroup, "Gateway", "gateways", true, []string{"v1", "v1beta1"}},
	{gatewayGroup, "ListenerSet", "listenersets", true, []string{"v1"}},
	{gatewayGroup, "HTTPRoute", "httproutes", true, []string{"v1", "v1beta1"}},
	{gatewayGroup, "GRPCRoute", "grpcroutes", true, []string{"v1"}},
	{gatewayGroup, "TLSRoute", "tlsroutes", true, []string{"v1", "v1alpha3", "v1alpha2"}},
	{gatewayGroup, "TCPRoute", "tcproutes", true, []string{"v1", "v1alpha2"}},
	{gatewayGroup, "ReferenceGrant", "referencegrants", true, []string{"v1", "v1beta1"}},
	{gatewayGroup, "BackendTLSPolicy", "backendtlspolicies", true, []string{"v1", "v1alpha3"}},
	{experimentalGroup, "XListenerSet", "xlistenersets", true, []string{"v1alpha1"}},
	{experimentalGroup, "XBackendTrafficPolicy", "xbackendtrafficpolicies", true, []string{"v1alpha1"}},
	{ingressGroup, "Ingress", "ingresses", true, []string{"v1"}},
	{ingressGroup, "IngressClass", "ingressclasses", false, []string{"v1"}},
	{"", "Namespace", "namespaces", false, []string{"v1"}},
	{"", "Service", "services", true, []string{"v1"}},
	{istioGroup, "ServiceEntry", "serviceentries", true, []string{"v1", "v1beta1", "v1alpha3"}},
}

// otherGroups are the groups of kinds that only occur in references; empty for those of Kubernetes itself.
var otherGroups = map[resource.Kind]string{"ServiceImport": "multicluster.x-k8s.io", "Hostname": istioGroup}

//go:embed specs.yaml
var specsYAML []byte

// specs are the shapes of the specs, by kind. A shape is an object of shapes, a list of one, or the type of a value. In
// an object, "*" stands for all other fields.
var specs = sync.OnceValue(func() (specs map[string]any) {
	_ = yaml.UnmarshalStrict(specsYAML, &specs) // on failure, no object would have its shape
	return specs
})

//go:embed defaults.yaml
var defaultsYAML []byte

// defaults are the defaults of the CRDs, which an API server fills in, by kind: a list below items, an object by field,
// the default of a missing field below default. TestDefaults writes them.
var defaults = sync.OnceValue(func() (defaults map[string]any) {
	text, _ := yaml.YAMLToJSON(defaultsYAML)
	_ = json.UnmarshalCaseSensitivePreserveInts(text, &defaults)
	return defaults
})

// fill fills in the defaults of missing fields, and returns the value.
func fill(value, rules any) any {
	node, _ := rules.(map[string]any)
	if values, isList := value.([]any); isList {
		for i := range values {
			values[i] = fill(values[i], node["items"])
		}
	}
	object, isObject := value.(map[string]any)
	for name, inner := range node {
		inner, isField := inner.(map[string]any)
		if !isObject || !isField || name == "default" || name == "items" {
			continue
		}
		if object[name] == nil && inner["default"] != nil {
			object[name] = runtime.DeepCopyJSONValue(inner["default"])
		}
		if object[name] != nil {
			object[name] = fill(object[name], inner)
		}
	}
	return value
}

// KindNamed finds a kind of the Gateway API or of Ingresses by its name or plural, in any case.
func KindNamed(name string) (kind Kind, exists bool) {
	i := slices.IndexFunc(Kinds, func(k Kind) bool {
		isService := k.Group == "" || k.Group == istioGroup
		return !isService && (strings.EqualFold(k.Kind, name) || strings.EqualFold(k.Plural, name))
	})
	if i < 0 {
		return Kind{}, false
	}
	return Kinds[i], true
}

// kindNamed returns the kind of this name; empty if Kinds lacks it.
func kindNamed(kind resource.Kind) (named Kind) {
	if i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Kind == string(kind) }); i >= 0 {
		named = Kinds[i]
	}
	return named
}

// object is an immutable object of a Set.
type object struct {
	resource.Key
	metadata
	origin  resource.Origin
	content any      // the spec
	unknown []string // fields that are not read
	wrong   error    // about the first field with another shape
}

// metadata has the fields of an object's metadata that are read.
type metadata struct {
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	CreationTimestamp time.Time         `json:"creationTimestamp"`
}

// decode decodes an object of one of Kinds.
func decode(input sources.Other) (*object, error) {
	object, kind := &object{Key: input.Key, origin: input.Origin}, kindNamed(input.Key.Kind)
	switch {
	case !slices.Contains(kind.Versions, path.Base(input.APIVersion)):
		return nil, fmt.Errorf("%s is not understood; %s are", input.APIVersion, strings.Join(kind.Versions, ", "))
	case object.Name == "":
		return nil, errors.New("metadata.name: it is missing, or no name that an object can have")
	}
	err := json.UnmarshalCaseSensitivePreserveInts(input.JSON, &struct {
		Metadata *metadata `json:"metadata"`
		Spec     *any      `json:"spec"`
	}{&object.metadata, &object.content})
	object.prune("spec", object.content, specs()[kind.Kind])
	object.content = fill(object.content, defaults()[kind.Kind])
	return object, cmp.Or(err, object.wrong)
}

// prune removes the fields of a value that are not read, and notes them and a field with another shape.
func (o *object) prune(path string, value, shape any) {
	want, ok := shape, value == nil || shape == "anything"
	if list, isList := shape.([]any); isList {
		values, isList := value.([]any)
		want, ok = "list", ok || isList
		for i := range values {
			o.prune(fmt.Sprintf("%s[%d]", path, i), values[i], list[0])
		}
	} else if fieldShapes, isObject := shape.(map[string]any); isObject {
		fields, isObject := value.(map[string]any)
		want, ok = "object", ok || isObject
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			switch inner := cmp.Or(fieldShapes[name], fieldShapes["*"]); inner {
			case nil:
				o.unknown = append(o.unknown, path+"."+name)
				delete(fields, name)
			case "ignored":
				delete(fields, name)
			default:
				o.prune(path+"."+name, fields[name], inner)
			}
		}
	}
	switch typed := value.(type) {
	case string:
		ok = ok || shape == "text"
	case bool:
		ok = ok || shape == "flag"
	case int64:
		ok = ok || shape == "number" && typed >= 0 && typed <= math.MaxInt32
	}
	if !ok {
		o.wrong = cmp.Or(o.wrong, fmt.Errorf("%s: it is no %s", path, want))
	}
}
