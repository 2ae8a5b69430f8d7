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
	maxPictureLines     = 200
	maxPictureAddresses = 5
)

// branch is a node of the picture.
type branch struct {
	text     string
	branches []*branch
}

// grow adds a branch below b.
func (b *branch) grow(format string, args ...any) *branch {
	next := &branch{text: fmt.Sprintf(format, args...)}
	b.branches = append(b.branches, next)
	return next
}

// lines draws the branch and those below it.
func (b *branch) lines() []string {
	drawn := []string{b.text}
	for i, next := range b.branches {
		first, below := "├─ ", "│  "
		if i == len(b.branches)-1 {
			first, below = "└─ ", "   "
		}
		for j, line := range next.lines() {
			if j > 0 {
				first = below
			}
			drawn = append(drawn, first+line)
		}
	}
	return drawn
}

// Picture draws the way of a request to a host: routes, destinations, subsets and endpoints. It is empty if no object
// has the host.
func (s *Server) Picture(host string) []string {
	pen := painter{server: s, snapshot: s.opts.View.Snapshot(), keys: make(map[string][]resource.Key)}
	services, routes := pen.list(host, resource.ServiceEntry), pen.list(host, resource.VirtualService)
	if len(services)+len(routes) == 0 {
		return nil
	}
	root := &branch{text: host}
	inMesh := false
	for _, object := range routes {
		spec, _ := specOf[*networking.VirtualService](object)
		gateways := spec.GetGateways()
		route := root.grow("%s", object.Key())
		if len(gateways) > 0 {
			route.text += ", at " + strings.Join(gateways, ", ")
		}
		inMesh = inMesh || len(gateways) == 0 || slices.Contains(gateways, "mesh")
		pen.routes(route, object.Key(), spec)
	}
	if !inMesh && len(services) > 0 {
		pen.services(root, host, nil, 0)
	}
	drawn := root.lines()
	if hidden := len(drawn) - maxPictureLines; hidden > 0 {
		drawn = append(drawn[:maxPictureLines], "… and "+words.Count(hidden, "more line", "more lines"))
	}
	return drawn
}

// painter draws the objects of one snapshot.
type painter struct {
	server   *Server
	snapshot memstore.Snapshot
	keys     map[string][]resource.Key // of the objects that name a host
}

// list returns the objects of a kind that name a host.
func (p painter) list(host string, kind resource.Kind) (objects []*resource.Resource) {
	keys, cached := p.keys[host]
	if !cached {
		keys = p.server.SpeakOf(host)
		p.keys[host] = keys
	}
	for _, key := range keys {
		if object := p.snapshot.Get(key); object != nil && key.Kind == kind {
			objects = append(objects, object)
		}
	}
	return objects
}

func specOf[T any](object *resource.Resource) (spec T, ok bool) {
	message, err := object.Spec()
	if err != nil {
		return spec, false // the source decoded it before
	}
	spec, ok = message.(T)
	return spec, ok
}

// routeObject is a VirtualService with the messages about its references that lead nowhere.
type routeObject struct {
	key        resource.Key
	unresolved []string
}

// nowhere returns the message about a destination, by the path of its field. It is empty if the destination exists.
func (o routeObject) nowhere(field string) string {
	for _, message := range o.unresolved {
		if rest, matches := strings.CutPrefix(message, field+"."); matches {
			_, text, _ := strings.Cut(rest, ": ")
			return text
		}
	}
	return ""
}

// routes draws the routes of a VirtualService, with those of its delegates.
func (p painter) routes(parent *branch, key resource.Key, spec *networking.VirtualService) {
	object := routeObject{key, p.server.unresolvedOf(key)}
	for i, route := range spec.GetHttp() {
		node := parent.grow("%s%s", matchesText(route.GetMatch(), "all requests"), faultText(route.GetFault()))
		switch {
		case route.GetDelegate() != nil:
			delegate := resource.DelegateKey(route.GetDelegate(), key.Namespace)
			next := node.grow("delegate %s", delegate.FullName())
			object := p.snapshot.Get(delegate)
			if object == nil {
				next.text += ": LEADS NOWHERE, there is no such VirtualService"
			} else if rules, ok := specOf[*networking.VirtualService](object); ok && len(rules.GetHosts()) == 0 {
				p.routes(next, delegate, rules)
			}
		case route.GetRedirect() != nil:
			redirect := route.GetRedirect()
			node.grow("redirect to %s", cmp.Or(redirect.GetAuthority()+redirect.GetUri(), "another scheme or port"))
		case route.GetDirectResponse() != nil:
			node.grow("response %d", route.GetDirectResponse().GetStatus())
		}
		field := fmt.Sprintf("spec.http[%d]", i)
		drawDestinations(p, node, route.GetRoute(), object, field)
		p.mirrors(node, route, object, field)
	}
	for i, route := range spec.GetTls() {
		node := parent.grow("TLS %s", matchesText(route.GetMatch(), "all connections"))
		drawDestinations(p, node, route.GetRoute(), object, fmt.Sprintf("spec.tls[%d]", i))
	}
	for i, route := range spec.GetTcp() {
		node := parent.grow("TCP %s", matchesText(route.GetMatch(), "all connections"))
		drawDestinations(p, node, route.GetRoute(), object, fmt.Sprintf("spec.tcp[%d]", i))
	}
}

// faultText is the text about the faults that a route injects.
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

// mirrors draws the destinations that get a copy of the requests.
func (p painter) mirrors(parent *branch, route *networking.HTTPRoute, object routeObject, field string) {
	if mirror := route.GetMirror(); mirror != nil {
		percent := 100.0
		switch {
		case route.GetMirrorPercentage() != nil:
			percent = route.GetMirrorPercentage().GetValue()
		case route.GetMirrorPercent() != nil: //nolint:staticcheck // the older way to say it
			percent = float64(route.GetMirrorPercent().GetValue()) //nolint:staticcheck // the same
		}
		p.destination(parent, "mirror "+percentText(percent)+" to ", mirror, object, field+".mirror")
	}
	for i, mirror := range route.GetMirrors() {
		percent := 100.0
		if mirror.GetPercentage() != nil {
			percent = mirror.GetPercentage().GetValue()
		}
		p.destination(parent, "mirror "+percentText(percent)+" to ", mirror.GetDestination(), object,
			fmt.Sprintf("%s.mirrors[%d].destination", field, i))
	}
}

// weighted is a destination of a route with its weight.
type weighted interface {
	GetDestination() *networking.Destination
	GetWeight() int32
}

// drawDestinations draws the destinations of a route, with their shares if there are several.
func drawDestinations[T weighted](p painter, parent *branch, destinations []T, object routeObject, field string) {
	total := 0.0
	for _, to := range destinations {
		total += float64(to.GetWeight())
	}
	for i, to := range destinations {
		share := ""
		if len(destinations) > 1 {
			share = percentText(100*float64(to.GetWeight())/max(total, 1)) + " to "
		}
		p.destination(parent, share, to.GetDestination(), object, fmt.Sprintf("%s.route[%d].destination", field, i))
	}
}

// destination draws the subset and the endpoints of a destination, which an object has in a field.
func (p painter) destination(
	parent *branch, share string, destination *networking.Destination, object routeObject, field string,
) {
	host := conflicts.FullHost(destination.GetHost(), object.key.Namespace)
	node := parent.grow("%s%s", share, host)
	port := destination.GetPort().GetNumber()
	if port != 0 {
		node.text += fmt.Sprintf(":%d", port)
	}
	selector, exists := map[string]string(nil), true
	if name := destination.GetSubset(); name != "" {
		node.text += ", subset " + name
		selector, exists = p.subset(host, name)
	}
	if message := object.nowhere(field); message != "" {
		node.text += ": LEADS NOWHERE, " + message
	} else if !exists {
		node.text += ": LEADS NOWHERE, no DestinationRule has the subset"
	} else {
		p.services(node, host, selector, port)
	}
}

// services draws the ServiceEntries of a host. Those without the port, unless it is zero, have no endpoints for it.
func (p painter) services(node *branch, host string, selector map[string]string, port uint32) {
	services := p.list(host, resource.ServiceEntry)
	if len(services) == 0 {
		node.text += ": no ServiceEntry has the host"
	}
	for _, service := range services {
		text := p.endpoints(service, selector)
		spec, _ := specOf[*networking.ServiceEntry](service)
		hasPort := func(servicePort *networking.ServicePort) bool { return servicePort.GetNumber() == port }
		if port != 0 && !slices.ContainsFunc(spec.GetPorts(), hasPort) {
			text = fmt.Sprintf("LEADS NOWHERE, it has no port %d", port)
		}
		node.grow("%s: %s", service.Key(), text)
	}
}

// subset returns the labels of a subset.
func (p painter) subset(host, name string) (selector map[string]string, exists bool) {
	for _, object := range p.list(host, resource.DestinationRule) {
		rule, _ := specOf[*networking.DestinationRule](object)
		for _, subset := range rule.GetSubsets() {
			if subset.GetName() == name {
				return subset.GetLabels(), true
			}
		}
	}
	return nil, false
}

// endpoints is the text about the endpoints of a ServiceEntry that have the labels of a subset.
func (p painter) endpoints(service *resource.Resource, selector map[string]string) string {
	spec, _ := specOf[*networking.ServiceEntry](service)
	endpoints := spec.GetEndpoints()
	if workloads := spec.GetWorkloadSelector(); workloads != nil {
		for object := range p.snapshot.List(resource.WorkloadEntry, service.Key().Namespace) {
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
	if len(addresses) > maxPictureAddresses {
		addresses = append(addresses[:maxPictureAddresses], "…")
	}
	if len(addresses) > 0 {
		text += ": " + strings.Join(addresses, ", ")
	}
	return text
}

func hasLabels(endpoint *networking.WorkloadEntry, selector map[string]string) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(endpoint.GetLabels()))
}

// matchesText says which requests or connections a route takes.
func matchesText[T proto.Message](matches []T, everything string) string {
	alternatives := words.Each(matches, func(match T) string {
		return cmp.Or(strings.Join(conditionsOf(match.ProtoReflect()), ", "), everything)
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

// conditionsOf returns a text for each condition of a match, in the order of its fields.
func conditionsOf(match protoreflect.Message) (conditions []string) {
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

// patternText writes the condition of a text.
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
