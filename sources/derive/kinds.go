package derive

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unique"

	"sigs.k8s.io/json"

	"tributary/resource"
)

// The groups of the APIs.
const (
	gatewayGroup      = "gateway.networking.k8s.io"
	experimentalGroup = "gateway.networking.x-k8s.io"
	multiclusterGroup = "multicluster.x-k8s.io"
	istioGroup        = "networking.istio.io"
	ingressGroup      = "networking.k8s.io"
)

// Kind is a kind of objects that a Set takes.
type Kind struct {
	Group      string // of the API; empty for that of Kubernetes itself
	Kind       string
	Plural     string
	Namespaced bool
	context    bool     // nothing is made of the objects of this kind; others refer to them
	Versions   []string // those that are understood, the preferred one first

	spec fields
}

// Kinds are all kinds that a Set takes.
var Kinds = []Kind{
	{gatewayGroup, "GatewayClass", "gatewayclasses", false, false, []string{"v1", "v1beta1"}, classSpec},
	{gatewayGroup, "Gateway", "gateways", true, false, []string{"v1", "v1beta1"}, gatewaySpec},
	{gatewayGroup, "ListenerSet", "listenersets", true, false, []string{"v1"}, listenerSetSpec},
	{gatewayGroup, "HTTPRoute", "httproutes", true, false, []string{"v1", "v1beta1"}, httpRouteSpec},
	{gatewayGroup, "GRPCRoute", "grpcroutes", true, false, []string{"v1"}, grpcRouteSpec},
	{gatewayGroup, "TLSRoute", "tlsroutes", true, false, []string{"v1", "v1alpha3", "v1alpha2"}, streamRouteSpec},
	{gatewayGroup, "TCPRoute", "tcproutes", true, false, []string{"v1", "v1alpha2"}, streamRouteSpec},
	{gatewayGroup, "ReferenceGrant", "referencegrants", true, false, []string{"v1", "v1beta1"}, grantSpec},
	{gatewayGroup, "BackendTLSPolicy", "backendtlspolicies", true, false, []string{"v1", "v1alpha3"}, tlsPolicySpec},
	{experimentalGroup, "XListenerSet", "xlistenersets", true, false, []string{"v1alpha1"}, listenerSetSpec},
	{experimentalGroup, "XBackendTrafficPolicy", "xbackendtrafficpolicies", true, false, []string{"v1alpha1"}, trafficPolicySpec},
	{ingressGroup, "Ingress", "ingresses", true, false, []string{"v1"}, ingressSpec},
	{ingressGroup, "IngressClass", "ingressclasses", false, true, []string{"v1"}, fields{"controller": text}},
	{"", "Namespace", "namespaces", false, true, []string{"v1"}, fields{}},
	{"", "Service", "services", true, true, []string{"v1"}, serviceSpec},
	{istioGroup, "ServiceEntry", "serviceentries", true, true, []string{"v1", "v1beta1", "v1alpha3"}, fields{"hosts": list{text}}},
}

// The shape of a value in a spec: fields, a list of a shape, or one of these.
const (
	text     = "a text"
	number   = "a number from 0 to 2147483647"
	flag     = "true or false"
	labels   = "an object of texts"
	anything = "anything"
)

type (
	fields map[string]any
	list   struct{ of any }
)

// String is how errors name the shape.
func (fields) String() string { return "an object" }

// String is how errors name the shape.
func (list) String() string { return "a list" }

// with returns the fields of f and some more.
func (f fields) with(more fields) fields {
	all := maps.Clone(f)
	maps.Copy(all, more)
	return all
}

// The fields that are read of Gateway API 1.5, Ingress and Service, whose documentation says what they mean. All others are reported.
var (
	anyKind    = fields{"group": text, "kind": text}
	localRef   = anyKind.with(fields{"name": text})
	objectRef  = localRef.with(fields{"namespace": text})
	parentRef  = objectRef.with(fields{"sectionName": text, "port": number})
	backend    = objectRef.with(fields{"port": number, "weight": number})
	namespaces = fields{"from": text, "selector": anything}
	listeners  = list{fields{
		"name": text, "hostname": text, "port": number, "protocol": text,
		"tls":           fields{"mode": text, "certificateRefs": list{objectRef}, "options": labels},
		"allowedRoutes": fields{"namespaces": namespaces, "kinds": list{anyKind}},
	}}
	classSpec   = fields{"controllerName": text, "description": anything, "parametersRef": anything}
	gatewaySpec = fields{
		"gatewayClassName": text, "listeners": listeners, "addresses": list{fields{"type": text, "value": text}},
		"tls": fields{"frontend": anything}, "allowedListeners": fields{"namespaces": namespaces}, "infrastructure": anything,
	}
	listenerSetSpec = fields{"parentRef": objectRef, "listeners": listeners}

	values       = list{fields{"type": text, "name": text, "value": text}}
	headerFilter = fields{"set": values, "add": values, "remove": list{text}}
	pathModifier = fields{"type": text, "replaceFullPath": text, "replacePrefixMatch": text}
	filters      = list{fields{
		"type": text, "requestHeaderModifier": headerFilter, "responseHeaderModifier": headerFilter,
		"requestMirror":   fields{"backendRef": backend, "percent": number, "fraction": fields{"numerator": number, "denominator": number}},
		"requestRedirect": fields{"scheme": text, "hostname": text, "path": pathModifier, "port": number, "statusCode": number},
		"urlRewrite":      fields{"hostname": text, "path": pathModifier},
		"cors": fields{
			"allowOrigins": list{text}, "allowCredentials": flag, "allowMethods": list{text}, "allowHeaders": list{text},
			"exposeHeaders": list{text}, "maxAge": number,
		},
	}}
	httpMatch = fields{"path": fields{"type": text, "value": text}, "headers": values, "queryParams": values, "method": text}
	grpcMatch = fields{"headers": values, "method": fields{"type": text, "service": text, "method": text}}

	httpRouteSpec = routeSpec(fields{
		"matches": list{httpMatch}, "timeouts": fields{"request": text, "backendRequest": text},
		"retry": fields{"codes": list{number}, "attempts": number, "backoff": text},
	})
	grpcRouteSpec   = routeSpec(fields{"matches": list{grpcMatch}})
	streamRouteSpec = routeSpec(fields{})

	grantSpec     = fields{"from": list{anyKind.with(fields{"namespace": text})}, "to": list{localRef}}
	tlsPolicySpec = fields{
		"targetRefs": list{localRef.with(fields{"sectionName": text})},
		"validation": fields{
			"caCertificateRefs": list{localRef}, "wellKnownCACertificates": text, "hostname": text,
			"subjectAltNames": list{fields{"type": text, "hostname": text, "uri": text}},
		},
	}
	trafficPolicySpec = fields{
		"targetRefs":      list{localRef},
		"retryConstraint": fields{"budget": fields{"percent": number}, "minRetryRate": fields{"count": number}},
	}
	servicePort = fields{"name": text, "number": number}
	ingressPath = fields{
		"path": text, "pathType": text, "backend": fields{"resource": anything, "service": fields{"name": text, "port": servicePort}},
	}
	ingressSpec = fields{
		"ingressClassName": text, "defaultBackend": anything, "tls": list{fields{"hosts": list{text}, "secretName": text}},
		"rules": list{fields{"host": text, "http": fields{"paths": list{ingressPath}}}},
	}
	serviceSpec = fields{"selector": labels, "ports": list{fields{"name": text, "port": number}}}
)

func routeSpec(ofRule fields) fields {
	rule := ofRule.with(fields{"name": text, "filters": filters, "backendRefs": list{backend.with(fields{"filters": filters})}})
	return fields{"parentRefs": list{parentRef}, "hostnames": list{text}, "rules": list{rule}}
}

// object is one that was put into a Set. It is not changed afterwards.
type object struct {
	metadata
	kind    resource.Kind
	origin  resource.Origin
	content any      // the spec
	unknown []string // the fields that are not read
}

// metadata is what is read of the metadata of an object.
type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	CreationTimestamp time.Time         `json:"creationTimestamp"`
}

func (o *object) key() resource.Key {
	return resource.Key{Kind: o.kind, Namespace: o.Namespace, Name: o.Name}
}

func kindNamed(kind resource.Kind) *Kind {
	if i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Kind == string(kind) }); i >= 0 {
		return &Kinds[i]
	}
	return nil
}

// decode reads an object of one of Kinds.
func (o Options) decode(apiVersion string, kind resource.Kind, origin resource.Origin, text []byte) (*object, error) {
	wrong := func(format string, args ...any) (*object, error) {
		return nil, fmt.Errorf("kind %s of %s: "+format, append([]any{kind, apiVersion}, args...)...)
	}
	k, version := kindNamed(kind), apiVersion[strings.LastIndex(apiVersion, "/")+1:]
	if k == nil || strings.TrimPrefix(k.Group+"/"+version, "/") != apiVersion {
		return wrong("nothing is derived from it")
	}
	if !slices.Contains(k.Versions, version) {
		return wrong("this version is not understood; %s are", strings.Join(k.Versions, ", "))
	}
	made := &object{kind: kind, origin: origin}
	err := json.UnmarshalCaseSensitivePreserveInts(text, &struct {
		Metadata *metadata `json:"metadata"`
		Spec     *any      `json:"spec"`
	}{&made.metadata, &made.content})
	if err == nil {
		made.content, err = made.prune("spec", made.content, k.spec)
	}
	if err != nil {
		return wrong("decode: %w", err)
	}
	switch {
	case made.Name == "":
		return wrong("metadata.name is missing")
	case !k.Namespaced:
		made.Namespace = ""
	case made.Namespace == "":
		made.Namespace = o.DefaultNamespace
	}
	if k.context {
		made.unknown = nil // little is read of those
	}
	return made, nil
}

// record is what is read of a JSON object. A map would take three times as much memory.
type (
	record []field
	field  struct {
		name  string
		value any
	}
)

// prune returns what is read of a value, and notes the rest. An error says which field has not the shape that it must have.
func (o *object) prune(path string, value, shape any) (read any, err error) {
	inner := func(path string, value, shape any) any {
		read, wrong := o.prune(path, value, shape)
		err = cmp.Or(err, wrong)
		return read
	}
	ok := value == nil || shape == anything
	switch v := value.(type) {
	case string:
		ok = ok || shape == text
	case bool:
		ok = ok || shape == flag
	case int64:
		ok = ok || shape == number && v >= 0 && v <= math.MaxInt32
	case []any:
		if l, isList := shape.(list); isList {
			for i := range v {
				v[i] = inner(fmt.Sprintf("%s[%d]", path, i), v[i], l.of)
			}
			return v, err
		}
	case map[string]any:
		known, isFields := shape.(fields)
		if !isFields && shape != labels {
			break
		}
		all := make(record, 0, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if shape, isKnown := known[name]; isKnown {
				all = append(all, field{unique.Make(name).Value(), inner(path+"."+name, v[name], shape)})
			} else if isFields {
				o.unknown = append(o.unknown, path+"."+name)
			} else {
				all = append(all, field{name, inner(path+"."+name, v[name], text)})
			}
		}
		return all, err
	}
	if !ok {
		return nil, fmt.Errorf("%s: want %v", path, shape)
	}
	return value, nil
}
