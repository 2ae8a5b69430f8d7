package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networking "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/labels"

	"tributary/aggregate/conflicts"
	"tributary/internal/words"
	"tributary/memstore"
	"tributary/resource"
)

const (
	maxTreeLines     = 200
	maxTreeAddresses = 5
)

// treeNode is a node of the tree that Server.RequestTree draws.
type treeNode struct {
	text     string
	children []*treeNode
}

// addChild adds a child, and returns it.
func (n *treeNode) addChild(format string, args ...any) *treeNode {
	child := &treeNode{text: fmt.Sprintf(format, args...)}
	n.children = append(n.children, child)
	return child
}

// lines draws the node and those below it.
func (n *treeNode) lines() []string {
	lines := []string{n.text}
	for i, child := range n.children {
		prefix, nextPrefix := "├─ ", "│  "
		if i == len(n.children)-1 {
			prefix, nextPrefix = "└─ ", "   "
		}
		for _, line := range child.lines() {
			lines = append(lines, prefix+line)
			prefix = nextPrefix
		}
	}
	return lines
}

// RequestTree draws where requests to a host go: a tree of routes, destinations, subsets and endpoints. It has no lines
// if no object has the host.
func (s *Server) RequestTree(host string) []string {
	builder := treeBuilder{server: s, snapshot: s.opts.View.Snapshot(), keys: make(map[string][]resource.Key)}
	services := builder.objectsOfHost(host, resource.ServiceEntry)
	virtualServices := builder.objectsOfHost(host, resource.VirtualService)
	if len(services)+len(virtualServices) == 0 {
		return nil
	}
	root := &treeNode{text: host}
	isRoutedInMesh := false
	for _, object := range virtualServices {
		spec, _ := specOf[*networking.VirtualService](object)
		gateways := spec.GetGateways()
		node := root.addChild("%s", object.Key())
		if len(gateways) > 0 {
			node.text += ", at " + strings.Join(gateways, ", ")
		}
		isRoutedInMesh = isRoutedInMesh || len(gateways) == 0 || slices.Contains(gateways, "mesh")
		builder.addRoutes(node, object.Key(), spec)
	}
	if !isRoutedInMesh && len(services) > 0 {
		builder.addServices(root, host, nil, 0)
	}
	lines := root.lines()
	if hidden := len(lines) - maxTreeLines; hidden > 0 {
		lines = append(lines[:maxTreeLines], "… and "+words.Count(hidden, "more line", "more lines"))
	}
	return lines
}

// treeBuilder adds the objects of one snapshot to a tree.
type treeBuilder struct {
	server   *Server
	snapshot memstore.Snapshot
	keys     map[string][]resource.Key // the objects that reference a host; a cache of Server.KeysOfHost
}

// objectsOfHost returns the objects of a kind that reference a host.
func (b treeBuilder) objectsOfHost(host string, kind resource.Kind) (objects []*resource.Resource) {
	keys, cached := b.keys[host]
	if !cached {
		keys = b.server.KeysOfHost(host)
		b.keys[host] = keys
	}
	for _, key := range keys {
		if object := b.snapshot.Get(key); object != nil && key.Kind == kind {
			objects = append(objects, object)
		}
	}
	return objects
}

// specOf returns the spec of an object. It is zero if the object has another kind.
func specOf[T any](object *resource.Resource) (spec T, ok bool) {
	message, err := object.Spec()
	if err != nil {
		return spec, false // impossible: the source decoded it before
	}
	spec, ok = message.(T)
	return spec, ok
}

// routeObject is a VirtualService with the messages about its references that lead to no object.
type routeObject struct {
	key        resource.Key
	unresolved []string
}

// unresolvedMessage returns the message about the destination in a field, given by its path. It is empty if the
// destination exists.
func (o routeObject) unresolvedMessage(field string) string {
	for _, message := range o.unresolved {
		if rest, matches := strings.CutPrefix(message, field+"."); matches {
			_, text, _ := strings.Cut(rest, ": ")
			return text
		}
	}
	return ""
}

// addRoutes adds the routes of a VirtualService, with those of its delegates.
func (b treeBuilder) addRoutes(parent *treeNode, key resource.Key, spec *networking.VirtualService) {
	object := routeObject{key, b.server.unresolvedMessages(key)}
	for i, route := range spec.GetHttp() {
		node := parent.addChild("%s%s", matchesText(route.GetMatch(), "all requests"), faultText(route.GetFault()))
		switch {
		case route.GetDelegate() != nil:
			delegate := resource.DelegateKey(route.GetDelegate(), key.Namespace)
			child := node.addChild("delegate %s", delegate.FullName())
			object := b.snapshot.Get(delegate)
			if object == nil {
				child.text += ": LEADS NOWHERE, there is no such VirtualService"
			} else if spec, ok := specOf[*networking.VirtualService](object); ok && len(spec.GetHosts()) == 0 {
				b.addRoutes(child, delegate, spec) // a delegate has no hosts
			}
		case route.GetRedirect() != nil:
			redirect := route.GetRedirect()
			node.addChild("redirect to %s", cmp.Or(redirect.GetAuthority()+redirect.GetUri(), "another scheme or port"))
		case route.GetDirectResponse() != nil:
			node.addChild("response %d", route.GetDirectResponse().GetStatus())
		}
		field := fmt.Sprintf("spec.http[%d]", i)
		addDestinations(b, node, route.GetRoute(), object, field)
		b.addMirrors(node, route, object, field)
	}
	for i, route := range spec.GetTls() {
		node := parent.addChild("TLS %s", matchesText(route.GetMatch(), "all connections"))
		addDestinations(b, node, route.GetRoute(), object, fmt.Sprintf("spec.tls[%d]", i))
	}
	for i, route := range spec.GetTcp() {
		node := parent.addChild("TCP %s", matchesText(route.GetMatch(), "all connections"))
		addDestinations(b, node, route.GetRoute(), object, fmt.Sprintf("spec.tcp[%d]", i))
	}
}

// faultText describes the faults that a route injects.
func faultText(fault *networking.HTTPFaultInjection) (text string) {
	if abort := fault.GetAbort(); abort != nil {
		status := cmp.Or(abort.GetGrpcStatus(), abort.GetHttp2Error(), fmt.Sprint(abort.GetHttpStatus()))
		text = fmt.Sprintf("; fault: abort %s with %s", percentText(abort.GetPercentage().GetValue()), status)
	}
	if delay := fault.GetDelay(); delay != nil {
		percent := delay.GetPercentage().GetValue()
		if delay.GetPercentage() == nil {
			percent = float64(delay.GetPercent()) //nolint:staticcheck // the older way to say it
		}
		text += fmt.Sprintf("; fault: delay %s by %s", percentText(percent), delay.GetFixedDelay().AsDuration())
	}
	return text
}

// percentText writes a percentage with at most four digits.
func percentText(percent float64) string { return fmt.Sprintf("%.4g %%", percent) }

// addMirrors adds the destinations that get copies of requests.
func (b treeBuilder) addMirrors(parent *treeNode, route *networking.HTTPRoute, object routeObject, field string) {
	if mirror := route.GetMirror(); mirror != nil {
		percent := 100.0
		switch {
		case route.GetMirrorPercentage() != nil:
			percent = route.GetMirrorPercentage().GetValue()
		case route.GetMirrorPercent() != nil: //nolint:staticcheck // the older way to say it
			percent = float64(route.GetMirrorPercent().GetValue()) //nolint:staticcheck // the same
		}
		b.addDestination(parent, "mirror "+percentText(percent)+" to ", mirror, object, field+".mirror")
	}
	for i, mirror := range route.GetMirrors() {
		percent := 100.0
		if mirror.GetPercentage() != nil {
			percent = mirror.GetPercentage().GetValue()
		}
		b.addDestination(parent, "mirror "+percentText(percent)+" to ", mirror.GetDestination(), object,
			fmt.Sprintf("%s.mirrors[%d].destination", field, i))
	}
}

// weighted is a destination of a route with its weight.
type weighted interface {
	GetDestination() *networking.Destination
	GetWeight() int32
}

// addDestinations adds the destinations of a route, with their shares of the requests if there are several.
func addDestinations[T weighted](b treeBuilder, parent *treeNode, destinations []T, object routeObject, field string) {
	total := 0.0
	for _, destination := range destinations {
		total += float64(destination.GetWeight())
	}
	for i, destination := range destinations {
		prefix := ""
		if len(destinations) > 1 {
			prefix = percentText(100*float64(destination.GetWeight())/max(total, 1)) + " to "
		}
		path := fmt.Sprintf("%s.route[%d].destination", field, i)
		b.addDestination(parent, prefix, destination.GetDestination(), object, path)
	}
}

// addDestination adds a destination, which an object has in a field, with its subset and endpoints. The prefix tells
// the share of the requests.
func (b treeBuilder) addDestination(
	parent *treeNode, prefix string, destination *networking.Destination, object routeObject, field string,
) {
	host := conflicts.FullHost(destination.GetHost(), object.key.Namespace)
	node := parent.addChild("%s%s", prefix, host)
	port := destination.GetPort().GetNumber()
	if port != 0 {
		node.text += fmt.Sprintf(":%d", port)
	}
	var selector map[string]string
	subsetExists := true
	if name := destination.GetSubset(); name != "" {
		node.text += ", subset " + name
		selector, subsetExists = b.subsetLabels(host, name)
	}
	if message := object.unresolvedMessage(field); message != "" {
		node.text += ": LEADS NOWHERE, " + message
	} else if !subsetExists {
		node.text += ": LEADS NOWHERE, no DestinationRule has the subset"
	} else {
		b.addServices(node, host, selector, port)
	}
}

// addServices adds the ServiceEntries of a host, with the endpoints that a selector selects. A port other than zero has
// to be one of their ports.
func (b treeBuilder) addServices(node *treeNode, host string, selector map[string]string, port uint32) {
	services := b.objectsOfHost(host, resource.ServiceEntry)
	if len(services) == 0 {
		node.text += ": no ServiceEntry has the host"
	}
	for _, service := range services {
		text := b.endpointsText(service, selector)
		spec, _ := specOf[*networking.ServiceEntry](service)
		hasPort := func(servicePort *networking.ServicePort) bool { return servicePort.GetNumber() == port }
		if port != 0 && !slices.ContainsFunc(spec.GetPorts(), hasPort) {
			text = fmt.Sprintf("LEADS NOWHERE, it has no port %d", port)
		}
		node.addChild("%s: %s", service.Key(), text)
	}
}

// subsetLabels returns the labels of a host's subset.
func (b treeBuilder) subsetLabels(host, name string) (selector map[string]string, exists bool) {
	for _, object := range b.objectsOfHost(host, resource.DestinationRule) {
		destinationRule, _ := specOf[*networking.DestinationRule](object)
		for _, subset := range destinationRule.GetSubsets() {
			if subset.GetName() == name {
				return subset.GetLabels(), true
			}
		}
	}
	return nil, false
}

// endpointsText describes the endpoints of a ServiceEntry that have the labels of a selector.
func (b treeBuilder) endpointsText(service *resource.Resource, selector map[string]string) string {
	spec, _ := specOf[*networking.ServiceEntry](service)
	endpoints := spec.GetEndpoints()
	if workloads := spec.GetWorkloadSelector(); workloads != nil {
		for object := range b.snapshot.List(resource.WorkloadEntry, service.Key().Namespace) {
			entry, _ := specOf[*networking.WorkloadEntry](object)
			if hasLabels(entry, workloads.GetLabels()) {
				endpoints = append(slices.Clip(endpoints), entry)
			}
		}
	} else if len(endpoints) == 0 && spec.GetResolution() == networking.ServiceEntry_NONE {
		return "requests go to the address that the caller connects to"
	} else if len(endpoints) == 0 && spec.GetResolution() != networking.ServiceEntry_STATIC {
		return "DNS resolves the host"
	}
	var addresses []string
	for _, endpoint := range endpoints {
		if hasLabels(endpoint, selector) {
			addresses = append(addresses, endpoint.GetAddress())
		}
	}
	text := words.Count(len(addresses), "endpoint", "endpoints")
	if len(selector) > 0 {
		text += fmt.Sprintf(" of %d with %s", len(endpoints), labels.Set(selector))
	}
	if len(addresses) > maxTreeAddresses {
		addresses = append(addresses[:maxTreeAddresses], "…")
	}
	if len(addresses) > 0 {
		text += ": " + strings.Join(addresses, ", ")
	}
	return text
}

// hasLabels reports whether an endpoint has all labels of a selector.
func hasLabels(endpoint *networking.WorkloadEntry, selector map[string]string) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(endpoint.GetLabels()))
}

// matchesText describes the requests or connections that a route takes. A match without conditions takes everything.
func matchesText[T proto.Message](matches []T, everything string) string {
	alternatives := words.Each(matches, func(match T) string {
		return cmp.Or(strings.Join(conditionTexts(match.ProtoReflect()), ", "), everything)
	})
	return cmp.Or(strings.Join(alternatives, " or "), everything)
}

// conditionLabels are the texts before the values of the fields of a match. Other fields have their names. Fields with
// the label "-" are no conditions.
var conditionLabels = map[protoreflect.Name]string{
	"name": "-", "stat_prefix": "-", "ignore_uri_case": "-",
	"uri": "", "method": "", "sni_hosts": "",
	"authority": "authority ", "scheme": "scheme ", "headers": "header ", "without_headers": "without header ",
	"query_params": "query ", "port": "port ", "gateways": "at ", "source_labels": "from ",
	"source_namespace": "from namespace ", "source_subnet": "from ", "destination_subnets": "to ",
}

// conditionTexts returns a text for each condition of a match, in the order of its fields.
func conditionTexts(match protoreflect.Message) (conditions []string) {
	fields := match.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		label, labeled := conditionLabels[field.Name()]
		if !labeled {
			label = field.JSONName() + " "
		}
		if label == "-" || !match.Has(field) {
			continue
		}
		switch value := match.Get(field).Interface().(type) {
		case protoreflect.Map:
			var entries []string
			value.Range(func(key protoreflect.MapKey, entry protoreflect.Value) bool {
				if text := label + key.String(); field.MapValue().Kind() == protoreflect.StringKind {
					entries = append(entries, text+"="+entry.String())
				} else {
					entries = append(entries, text)
				}
				return true
			})
			conditions = append(conditions, slices.Sorted(slices.Values(entries))...)
		case protoreflect.List:
			var entries []string
			for j := range value.Len() {
				entries = append(entries, value.Get(j).String())
			}
			conditions = append(conditions, label+strings.Join(entries, ", "))
		case protoreflect.Message:
			conditions = append(conditions, strings.TrimSpace(label+patternText(value.Interface())))
		default:
			conditions = append(conditions, label+fmt.Sprint(value))
		}
	}
	return conditions
}

// patternText describes a StringMatch. Other messages are "any".
func patternText(message proto.Message) string {
	pattern, _ := message.(*networking.StringMatch)
	switch kind := pattern.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return kind.Exact
	case *networking.StringMatch_Prefix:
		return kind.Prefix + "*"
	case *networking.StringMatch_Regex:
		return "~" + kind.Regex
	}
	return "any"
}
