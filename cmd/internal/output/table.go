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

// columns are those that kubectl shows for Istio's CRDs.
var columnsOf = map[resource.Kind][]column{
	resource.AuthorizationPolicy: {{"ACTION", "action"}},
	resource.DestinationRule:     {{"HOST", "host"}},
	resource.Gateway:             {{"SELECTOR", "selector"}},
	resource.PeerAuthentication:  {{"MODE", "mtls.mode"}},
	resource.ServiceEntry:        {{"HOSTS", "hosts"}, {"LOCATION", "location"}, {"RESOLUTION", "resolution"}},
	resource.VirtualService:      {{"GATEWAYS", "gateways"}, {"HOSTS", "hosts"}},
	resource.WorkloadEntry:       {{"ADDRESS", "address"}},
}

// TableOptions say how a table looks.
type TableOptions struct {
	Namespaces bool // the first column is the namespace
	Kinds      bool // names have the kind before them, as get takes them
	Wide       bool // labels are shown, and all of what is long
	NoHeaders  bool
}

// Table prints rs, which are of one kind, with their age at now: since they were created, or else first seen.
func Table(w io.Writer, kind resource.Kind, rs []*resource.Resource, o TableOptions, now time.Time) error {
	var rows [][]string
	row := func(namespace, name string, cells []string, age, labels string) {
		line := append(append([]string{name}, cells...), age)
		if o.Namespaces {
			line = append([]string{namespace}, line...)
		}
		if o.Wide {
			line = append(line, labels)
		}
		rows = append(rows, line)
	}
	if !o.NoHeaders {
		row("NAMESPACE", "NAME", words.Each(columnsOf[kind], func(c column) string { return c.title }), "AGE", "LABELS")
	}
	for _, r := range rs {
		cells, err := cellsOf(r, o.Wide)
		if err != nil {
			return err
		}
		name := r.Key().Name
		if o.Kinds {
			name = strings.ToLower(string(kind)) + "/" + name
		}
		row(cmp.Or(r.Key().Namespace, "-"), name, cells, age(r, now), labelsOf(r))
	}
	return align(w, 3, rows)
}

// align writes rows of cells in columns, with so many blanks between them.
func align(w io.Writer, blanks int, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, blanks, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(t, strings.Join(row, "\t")) // Flush says if it failed
	}
	return t.Flush()
}

func labelsOf(r *resource.Resource) string {
	all := words.Each(slices.Sorted(maps.Keys(r.Labels())), func(key string) string { return key + "=" + r.Labels()[key] })
	return cmp.Or(clean(strings.Join(all, ",")), "-")
}

func cellsOf(r *resource.Resource, wide bool) ([]string, error) {
	if len(columnsOf[r.Key().Kind]) == 0 {
		return nil, nil
	}
	spec, err := r.Spec()
	if err != nil {
		return nil, err
	}
	return words.Each(columnsOf[r.Key().Kind], func(c column) string {
		return cmp.Or(clean(show(spec.ProtoReflect(), strings.Split(c.path, "."), wide)), "-")
	}), nil
}

func show(m protoreflect.Message, path []string, wide bool) string {
	field := m.Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	if field == nil || field.HasPresence() && !m.Has(field) {
		return ""
	}
	value := m.Get(field)
	switch {
	case len(path) > 1:
		return show(value.Message(), path[1:], wide)
	case field.IsList():
		var items []string
		for i := range value.List().Len() {
			items = append(items, value.List().Get(i).String())
		}
		return join(items, wide)
	case field.IsMap():
		var items []string
		value.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			items = append(items, k.String()+"="+v.String())
			return true
		})
		slices.Sort(items)
		return join(items, wide)
	case field.Enum() != nil:
		if e := field.Enum().Values().ByNumber(value.Enum()); e != nil {
			return string(e.Name())
		}
	}
	return value.String()
}

// join keeps a row within a screen, unless it may be wide.
func join(items []string, wide bool) string {
	const most = 3
	if len(items) <= most || wide {
		return strings.Join(items, ",")
	}
	return fmt.Sprintf("%s,+%d", strings.Join(items[:most], ","), len(items)-most)
}

func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}

func age(r *resource.Resource, now time.Time) string {
	since := r.Own()
	if since.IsZero() {
		since = r.Seen()
	}
	if since.IsZero() {
		return "-"
	}
	return Brief(now.Sub(since))
}

// Brief is a duration in its largest unit, as kubectl shows it.
func Brief(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// Envoy returns m as Envoy takes it, in JSON or else in YAML. Extensions that this program does not know are shown without their content.
func Envoy(m proto.Message, format string) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: resolver{protoregistry.GlobalTypes}}.Marshal(m)
	if err != nil || format == "json" {
		return text, err
	}
	return yaml.JSONToYAML(text)
}

// resolver finds an empty message where it knows none.
type resolver struct{ *protoregistry.Types }

func (r resolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	mt, err := r.Types.FindMessageByURL(url)
	if errors.Is(err, protoregistry.NotFound) {
		return (&emptypb.Empty{}).ProtoReflect().Type(), nil
	}
	return mt, err
}

// EnvoyTable prints the resources of a type, one a line, with what is most asked for.
func EnvoyTable(w io.Writer, typeURL string, resources []proto.Message) error {
	rows := map[string][][]string{
		adsc.ClusterType:  {{"NAME", "TYPE", "LB"}},
		adsc.EndpointType: {{"NAME", "HEALTHY", "ENDPOINTS"}},
		adsc.ListenerType: {{"NAME", "ADDRESS", "ROUTES"}},
		adsc.RouteType:    {{"NAME", "DOMAINS"}},
	}[typeURL]
	row := func(cells ...string) { rows = append(rows, cells) }
	for _, m := range resources {
		switch m := m.(type) {
		case *clusterv3.Cluster:
			row(m.GetName(), m.GetType().String(), m.GetLbPolicy().String())
		case *endpointv3.ClusterLoadAssignment:
			healthy, addresses := envoyEndpoints(m)
			row(m.GetClusterName(), fmt.Sprintf("%d/%d", healthy, len(addresses)), short(addresses))
		case *listenerv3.Listener:
			row(m.GetName(), address(m.GetAddress()), short(routes(m)))
		case *routev3.RouteConfiguration:
			var domains []string
			for _, vhost := range m.GetVirtualHosts() {
				domains = append(domains, vhost.GetDomains()...)
			}
			row(m.GetName(), short(domains))
		}
	}
	return align(w, 3, rows)
}

func envoyEndpoints(m *endpointv3.ClusterLoadAssignment) (healthy int, addresses []string) {
	for _, locality := range m.GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			addresses = append(addresses, address(e.GetEndpoint().GetAddress()))
			switch e.GetHealthStatus() {
			case corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_HEALTHY, corev3.HealthStatus_DEGRADED: // what Envoy uses
				healthy++
			}
		}
	}
	return healthy, addresses
}

func routes(m *listenerv3.Listener) []string {
	packed, err := anypb.New(m)
	if err != nil {
		return nil // it was unpacked before
	}
	return adsc.References(packed)
}

func address(a *corev3.Address) string {
	switch {
	case a.GetSocketAddress() != nil:
		s := a.GetSocketAddress()
		port := strconv.FormatUint(uint64(s.GetPortValue()), 10)
		if s.GetNamedPort() != "" {
			port = s.GetNamedPort()
		}
		return net.JoinHostPort(s.GetAddress(), port)
	case a.GetPipe() != nil:
		return a.GetPipe().GetPath()
	case a.GetEnvoyInternalAddress() != nil:
		return "internal " + a.GetEnvoyInternalAddress().GetServerListenerName()
	default:
		return "-"
	}
}

func short(items []string) string { return cmp.Or(join(items, false), "-") }
