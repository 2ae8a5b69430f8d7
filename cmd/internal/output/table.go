package output

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"sigs.k8s.io/yaml"

	"tributary/adsc"
	"tributary/internal/words"
	"tributary/resource"
)

type column struct {
	title string
	path  string // of the field
}

// kindColumns are the columns that kubectl shows for Istio's CRDs.
var kindColumns = map[resource.Kind][]column{
	resource.AuthorizationPolicy: {{"ACTION", "action"}},
	resource.DestinationRule:     {{"HOST", "host"}},
	resource.Gateway:             {{"SELECTOR", "selector"}},
	resource.PeerAuthentication:  {{"MODE", "mtls.mode"}},
	resource.ServiceEntry:        {{"HOSTS", "hosts"}, {"LOCATION", "location"}, {"RESOLUTION", "resolution"}},
	resource.VirtualService:      {{"GATEWAYS", "gateways"}, {"HOSTS", "hosts"}},
	resource.WorkloadEntry:       {{"ADDRESS", "address"}},
}

// TableOptions set the columns of a table.
type TableOptions struct {
	Namespaces bool // the first column is the namespace
	Kinds      bool // prefixes names with the kind, as get accepts them
	Wide       bool // adds labels, and shows long lists in full
	NoHeaders  bool
}

// Table prints objects of one kind with their age since creation, or else since this server first read them.
func Table(w io.Writer, kind resource.Kind, objects []*resource.Resource, options TableOptions, now time.Time) error {
	var rows [][]string
	addRow := func(namespace, name string, cells []string, age, labels string) {
		line := append(append([]string{name}, cells...), age)
		if options.Namespaces {
			line = append([]string{namespace}, line...)
		}
		if options.Wide {
			line = append(line, labels)
		}
		rows = append(rows, line)
	}
	if !options.NoHeaders {
		addRow("NAMESPACE", "NAME", words.Each(kindColumns[kind], func(column column) string { return column.title }), "AGE",
			"LABELS")
	}
	for _, object := range objects {
		cells, err := objectCells(object, options.Wide)
		if err != nil {
			return err
		}
		name := object.Key().Name
		if options.Kinds {
			name = strings.ToLower(string(kind)) + "/" + name
		}
		addRow(cmp.Or(object.Key().Namespace, "-"), name, cells, ageCell(object, now), labelCell(object))
	}
	return align(w, 3, rows)
}

// align writes rows of cells in columns with blanks between them.
func align(w io.Writer, blanks int, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, blanks, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t")) // Flush says if it failed
	}
	return table.Flush()
}

func labelCell(object *resource.Resource) string {
	labels := words.Each(slices.Sorted(maps.Keys(object.Labels())),
		func(key string) string { return key + "=" + object.Labels()[key] })
	return cmp.Or(printableLine(strings.Join(labels, ",")), "-")
}

func objectCells(object *resource.Resource, wide bool) ([]string, error) {
	if len(kindColumns[object.Key().Kind]) == 0 {
		return nil, nil
	}
	spec, err := object.Spec()
	if err != nil {
		return nil, err
	}
	return words.Each(kindColumns[object.Key().Kind], func(column column) string {
		return cmp.Or(printableLine(fieldText(spec.ProtoReflect(), strings.Split(column.path, "."), wide)), "-")
	}), nil
}

func fieldText(message protoreflect.Message, path []string, wide bool) string {
	field := message.Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	if field == nil || field.HasPresence() && !message.Has(field) {
		return ""
	}
	value := message.Get(field)
	switch {
	case len(path) > 1:
		return fieldText(value.Message(), path[1:], wide)
	case field.IsList():
		var items []string
		for i := range value.List().Len() {
			items = append(items, value.List().Get(i).String())
		}
		return joinCells(items, wide)
	case field.IsMap():
		var items []string
		value.Map().Range(func(key protoreflect.MapKey, entry protoreflect.Value) bool {
			items = append(items, key.String()+"="+entry.String())
			return true
		})
		slices.Sort(items)
		return joinCells(items, wide)
	case field.Enum() != nil:
		if name := field.Enum().Values().ByNumber(value.Enum()); name != nil {
			return string(name.Name())
		}
	}
	return value.String()
}

// joinCells shortens long lists, unless the table may be wide.
func joinCells(items []string, wide bool) string {
	const most = 3
	if len(items) <= most || wide {
		return strings.Join(items, ",")
	}
	return fmt.Sprintf("%s,+%d", strings.Join(items[:most], ","), len(items)-most)
}

func printableLine(text string) string {
	return strings.Map(func(char rune) rune {
		if char < ' ' {
			return ' '
		}
		return char
	}, text)
}

func ageCell(object *resource.Resource, now time.Time) string {
	created := object.Own()
	if created.IsZero() {
		created = object.Seen()
	}
	if created.IsZero() {
		return "-"
	}
	return Brief(now.Sub(created))
}

// Brief formats a duration in its largest unit, like kubectl.
func Brief(duration time.Duration) string {
	switch {
	case duration < 0:
		return "0s"
	case duration < 2*time.Minute:
		return fmt.Sprintf("%ds", int(duration.Seconds()))
	case duration < 2*time.Hour:
		return fmt.Sprintf("%dm", int(duration.Minutes()))
	case duration < 48*time.Hour:
		return fmt.Sprintf("%dh", int(duration.Hours()))
	default:
		return fmt.Sprintf("%dd", int(duration.Hours()/24))
	}
}

// Envoy returns a message in Envoy's JSON, or else in YAML. Unknown extensions appear without their content.
func Envoy(message proto.Message, format string) ([]byte, error) {
	text, err := protojson.MarshalOptions{
		UseProtoNames: true,
		Resolver:      resolver{protoregistry.GlobalTypes},
	}.Marshal(message)
	if err != nil || format == "json" {
		return text, err
	}
	return yaml.JSONToYAML(text)
}

// resolver returns an empty message for unknown types.
type resolver struct{ *protoregistry.Types }

func (r resolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	messageType, err := r.Types.FindMessageByURL(url)
	if errors.Is(err, protoregistry.NotFound) {
		return (&emptypb.Empty{}).ProtoReflect().Type(), nil
	}
	return messageType, err
}

// EnvoyTable prints a line for each resource of a type, with its main fields.
func EnvoyTable(writer io.Writer, typeURL string, resources []proto.Message) error {
	rows := map[string][][]string{
		adsc.ClusterType:  {{"NAME", "TYPE", "LB"}},
		adsc.EndpointType: {{"NAME", "HEALTHY", "ENDPOINTS"}},
		adsc.ListenerType: {{"NAME", "ADDRESS", "ROUTES"}},
		adsc.RouteType:    {{"NAME", "DOMAINS"}},
	}[typeURL]
	addRow := func(cells ...string) { rows = append(rows, cells) }
	for _, message := range resources {
		switch message := message.(type) {
		case *clusterv3.Cluster:
			addRow(message.GetName(), message.GetType().String(), message.GetLbPolicy().String())
		case *endpointv3.ClusterLoadAssignment:
			healthy, addresses := countEndpoints(message)
			addRow(message.GetClusterName(), fmt.Sprintf("%d/%d", healthy, len(addresses)), shortList(addresses))
		case *listenerv3.Listener:
			addRow(message.GetName(), addressText(message.GetAddress()), shortList(routeNames(message)))
		case *routev3.RouteConfiguration:
			var domains []string
			for _, vhost := range message.GetVirtualHosts() {
				domains = append(domains, vhost.GetDomains()...)
			}
			addRow(message.GetName(), shortList(domains))
		}
	}
	return align(writer, 3, rows)
}

func countEndpoints(assignment *endpointv3.ClusterLoadAssignment) (healthy int, addresses []string) {
	for _, locality := range assignment.GetEndpoints() {
		for _, endpoint := range locality.GetLbEndpoints() {
			addresses = append(addresses, addressText(endpoint.GetEndpoint().GetAddress()))
			switch endpoint.GetHealthStatus() {
			case corev3.HealthStatus_UNKNOWN,
				corev3.HealthStatus_HEALTHY,
				corev3.HealthStatus_DEGRADED: // Envoy sends requests to these
				healthy++
			}
		}
	}
	return healthy, addresses
}

func routeNames(listener *listenerv3.Listener) []string {
	packed, err := anypb.New(listener)
	if err != nil {
		return nil // impossible: the message was unpacked before
	}
	return adsc.References(packed)
}

func addressText(address *corev3.Address) string {
	switch {
	case address.GetSocketAddress() != nil:
		socket := address.GetSocketAddress()
		port := strconv.FormatUint(uint64(socket.GetPortValue()), 10)
		if socket.GetNamedPort() != "" {
			port = socket.GetNamedPort()
		}
		return net.JoinHostPort(socket.GetAddress(), port)
	case address.GetPipe() != nil:
		return address.GetPipe().GetPath()
	case address.GetEnvoyInternalAddress() != nil:
		return "internal " + address.GetEnvoyInternalAddress().GetServerListenerName()
	default:
		return "-"
	}
}

func shortList(items []string) string { return cmp.Or(joinCells(items, false), "-") }
