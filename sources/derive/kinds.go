package derive

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/json"

	"tributary/resource"
	"tributary/sources"
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
	Versions   []string // those that are understood, the preferred one first

	spec fields
}

// Kinds are all kinds that a Set takes.
var Kinds = []Kind{
	{gatewayGroup, "GatewayClass", "gatewayclasses", false, []string{"v1", "v1beta1"}, classSpec},
	{gatewayGroup, "Gateway", "gateways", true, []string{"v1", "v1beta1"}, gatewaySpec},
	{gatewayGroup, "ListenerSet", "listenersets", true, []string{"v1"}, listenerSetSpec},
	{gatewayGroup, "HTTPRoute", "httproutes", true, []string{"v1", "v1beta1"}, httpRouteSpec},
	{gatewayGroup, "GRPCRoute", "grpcroutes", true, []string{"v1"}, grpcRouteSpec},
	{gatewayGroup, "TLSRoute", "tlsroutes", true, []string{"v1", "v1alpha3", "v1alpha2"}, streamRouteSpec},
	{gatewayGroup, "TCPRoute", "tcproutes", true, []string{"v1", "v1alpha2"}, streamRouteSpec},
	{gatewayGroup, "ReferenceGrant", "referencegrants", true, []string{"v1", "v1beta1"}, grantSpec},
	{gatewayGroup, "BackendTLSPolicy", "backendtlspolicies", true, []string{"v1", "v1alpha3"}, tlsPolicySpec},
	{experimentalGroup, "XListenerSet", "xlistenersets", true, []string{"v1alpha1"}, listenerSetSpec},
	{experimentalGroup, "XBackendTrafficPolicy", "xbackendtrafficpolicies", true, []string{"v1alpha1"}, trafficPolicySpec},
	{ingressGroup, "Ingress", "ingresses", true, []string{"v1"}, ingressSpec},
	{ingressGroup, "IngressClass", "ingressclasses", false, []string{"v1"}, fields{"controller": text, others: ignored}},
	{"", "Namespace", "namespaces", false, []string{"v1"}, fields{others: ignored}},
	{"", "Service", "services", true, []string{"v1"}, serviceSpec},
	{istioGroup, "ServiceEntry", "serviceentries", true, []string{"v1", "v1beta1", "v1alpha3"}, fields{"hosts": list{text}, others: ignored}},
}

// The shape of a value in a spec: fields, a list of a shape, or one of these.
const (
	text     = "a text"
	number   = "a number from 0 to 2147483647"
	flag     = "true or false"
	anything = "anything"
	ignored  = "ignored" // without a report
	others   = "*"       // in fields, stands for those that are not named
)

type (
	fields map[string]any
	list   []any // has one: the shape of each
)

// String is how errors name the shape.
func (fields) String() string { return "an object" }

// String is how errors name the shape.
func (list) String() string { return "a list" }

var labels = fields{others: text}

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
	serviceSpec = fields{"selector": labels, "ports": list{fields{"name": text, "port": number, others: ignored}}, others: ignored}
)

func routeSpec(ofRule fields) fields {
	rule := ofRule.with(fields{"name": text, "filters": filters, "backendRefs": list{backend.with(fields{"filters": filters})}})
	return fields{"parentRefs": list{parentRef}, "hostnames": list{text}, "rules": list{rule}}
}

func kindNamed(kind resource.Kind) *Kind {
	if i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Kind == string(kind) }); i >= 0 {
		return &Kinds[i]
	}
	return nil
}

// object is one that was put into a Set. It is not changed afterwards.
type object struct {
	resource.Key
	metadata
	origin  resource.Origin
	content any      // the spec
	unknown []string // the fields that are not read
}

// metadata is what is read of the metadata of an object.
type metadata struct {
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	CreationTimestamp time.Time         `json:"creationTimestamp"`
}

// decode reads an object of one of Kinds.
func decode(other sources.Other) (*object, error) {
	o, k := &object{Key: other.Key, origin: other.Origin}, kindNamed(other.Key.Kind)
	switch {
	case !slices.Contains(k.Versions, path.Base(other.APIVersion)):
		return nil, fmt.Errorf("%s is not understood; %s are", other.APIVersion, strings.Join(k.Versions, ", "))
	case o.Name == "":
		return nil, errors.New("metadata.name: it is missing, or no name that an object can have")
	}
	err := json.UnmarshalCaseSensitivePreserveInts(other.JSON, &struct {
		Metadata *metadata `json:"metadata"`
		Spec     *any      `json:"spec"`
	}{&o.metadata, &o.content})
	return o, cmp.Or(err, o.prune("spec", o.content, k.spec))
}

// prune takes what is not read out of a value, and notes it. An error says which field has not the shape that it must have.
func (o *object) prune(path string, value, shape any) error {
	ok := value == nil || shape == anything
	switch v := value.(type) {
	case string:
		ok = ok || shape == text
	case bool:
		ok = ok || shape == flag
	case int64:
		ok = ok || shape == number && v >= 0 && v <= math.MaxInt32
	case []any:
		of, isList := shape.(list)
		for i := 0; isList && i < len(v); i++ {
			if err := o.prune(fmt.Sprintf("%s[%d]", path, i), v[i], of[0]); err != nil {
				return err
			}
		}
		ok = ok || isList
	case map[string]any:
		known, isFields := shape.(fields)
		ok = ok || isFields
		for _, name := range slices.Sorted(maps.Keys(v)) {
			switch inner := cmp.Or(known[name], known[others]); {
			case !isFields:
			case inner == nil:
				o.unknown = append(o.unknown, path+"."+name)
				delete(v, name)
			case inner == ignored:
				delete(v, name)
			default:
				if err := o.prune(path+"."+name, v[name], inner); err != nil {
					return err
				}
			}
		}
	}
	if !ok {
		return fmt.Errorf("%s: want %v", path, shape)
	}
	return nil
}
