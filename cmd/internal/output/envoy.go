package output

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

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
)

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
