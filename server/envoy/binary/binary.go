// Package binary checks resources with the binary of an Envoy.
package binary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"tributary/server/envoy/model"
)

// maxRun limits the time of one run of the binary.
const maxRun = time.Minute

// envoyVersion matches the output of an Envoy with any file name: its path, and revision/version/….
var envoyVersion = regexp.MustCompile(`(?m)  version: [0-9a-f]{8,}/[0-9]+\.[0-9]+`)

// maxRejections limits the search for rejections.
const maxRejections = 20

// Rejection is Envoy's message about a rejected resource, or about several that it rejects only together.
type Rejection struct {
	Resources []proto.Message
	Text      string
}

type checker struct {
	path, dir  string
	rejections []Rejection
}

// Check returns the resources of a client that the Envoy at a path rejects. A RouteConfiguration in the result has only
// its rejected virtual hosts.
func Check(ctx context.Context, path string, resources []proto.Message) ([]Rejection, error) {
	directory, err := os.MkdirTemp("", "tributary-envoy-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	if executable, err := exec.LookPath(path); err == nil {
		if path, err = filepath.Abs(executable); err != nil {
			return nil, err
		}
	}
	check := &checker{path: path, dir: directory}
	version, err := check.run(ctx, "--version")
	if err == nil && !envoyVersion.MatchString(version) {
		err = errors.New("--version does not name an Envoy")
	}
	if err != nil {
		return nil, fmt.Errorf("check with the Envoy %s: %w", path, err)
	}
	if text, err := check.validate(ctx, nil, resources); err != nil || text == "" {
		return nil, err
	}
	var base, clusters, routing []proto.Message
	for _, message := range resources {
		switch message := message.(type) {
		case *clusterv3.Cluster:
			clusters = append(clusters, message)
		case *endpointv3.ClusterLoadAssignment:
			base = append(base, message)
		case *listenerv3.Listener, *routev3.RouteConfiguration:
			routing = append(routing, message)
		}
	}
	if err := check.bisect(ctx, base, clusters); err != nil {
		return check.rejections, err
	}
	rejected := make(map[proto.Message]bool)
	for _, rejection := range check.rejections {
		for _, message := range rejection.Resources {
			rejected[message] = true
		}
	}
	for _, message := range clusters {
		if !rejected[message] {
			base = append(base, message)
		}
	}
	return check.rejections, check.bisect(ctx, base, routing)
}

// bisect finds the rejected resources among the candidates: Envoy stops at the first, and does not always name it.
func (c *checker) bisect(ctx context.Context, base, candidates []proto.Message) error {
	if len(candidates) == 0 || len(c.rejections) == maxRejections {
		return nil
	}
	text, err := c.validate(ctx, base, candidates)
	if err != nil || text == "" {
		return err
	}
	before := len(c.rejections)
	for _, half := range halves(candidates) {
		if err := c.bisect(ctx, base, half); err != nil {
			return err
		}
	}
	if len(c.rejections) == before {
		c.rejections = append(c.rejections, Rejection{candidates, text})
	}
	return nil
}

func halves(resources []proto.Message) [][]proto.Message {
	if middle := len(resources) / 2; middle > 0 {
		return [][]proto.Message{resources[:middle], resources[middle:]}
	}
	routes, ok := resources[0].(*routev3.RouteConfiguration)
	middle := len(routes.GetVirtualHosts()) / 2
	if !ok || middle == 0 {
		return nil
	}
	first, second := proto.CloneOf(routes), proto.CloneOf(routes)
	first.VirtualHosts, second.VirtualHosts = first.VirtualHosts[:middle], second.VirtualHosts[middle:]
	return [][]proto.Message{{first}, {second}}
}

// validate returns Envoy's message if it rejects some of the resources.
func (c *checker) validate(ctx context.Context, base, candidates []proto.Message) (text string, err error) {
	boot, err := bootstrap(slices.Concat(base, candidates))
	if err != nil {
		return "", err
	}
	file := filepath.Join(c.dir, "envoy.pb")
	b, err := proto.Marshal(boot)
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		return "", err
	}
	text, err = c.run(ctx, "--mode", "validate", "-c", file, "--log-level", "error")
	if exit := (*exec.ExitError)(nil); err == nil || ctx.Err() != nil || !errors.As(err, &exit) {
		return "", err
	}
	if _, after, ok := strings.Cut(text, file+"': "); ok {
		text = after
	}
	return strings.TrimSpace(text) + " (" + err.Error() + ")", nil
}

func (c *checker) run(ctx context.Context, args ...string) (out string, err error) {
	ctx, stop := context.WithTimeout(ctx, maxRun)
	defer stop()
	command := exec.CommandContext(ctx, c.path, args...) //nolint:gosec // the user names it
	command.Dir = c.dir                                  // Envoy opens files of access logs with relative names
	output, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s %s: %w", c.path, strings.Join(args, " "), ctx.Err())
	}
	return string(output), err
}

// bootstrap returns a bootstrap with all resources as static ones. Clusters contain their endpoints, and each
// RouteConfiguration gets a listener.
func bootstrap(resources []proto.Message) (*bootstrapv3.Bootstrap, error) {
	apiConfigSource := &corev3.ApiConfigSource{
		ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
		GrpcServices: []*corev3.GrpcService{
			{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "ads"}}},
		},
	}
	static := &bootstrapv3.Bootstrap_StaticResources{
		Clusters: []*clusterv3.Cluster{
			{Name: "ads", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}},
			{Name: model.SPIRECluster, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}},
		},
	}
	endpoints := make(map[string]*endpointv3.ClusterLoadAssignment)
	for _, message := range resources {
		if e, ok := message.(*endpointv3.ClusterLoadAssignment); ok {
			endpoints[e.GetClusterName()] = e
		}
	}
	for i, message := range resources {
		switch message := message.(type) {
		case *clusterv3.Cluster:
			message = proto.CloneOf(message)
			if e := message.GetEdsClusterConfig(); e != nil {
				message.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
				message.LoadAssignment = endpoints[cmp.Or(e.GetServiceName(), message.GetName())]
				message.EdsClusterConfig = nil
			}
			sockets := []*corev3.TransportSocket{message.GetTransportSocket()}
			for _, s := range message.GetTransportSocketMatches() {
				sockets = append(sockets, s.GetTransportSocket())
			}
			for _, s := range sockets {
				if err := withoutSecrets(s); err != nil {
					return nil, fmt.Errorf("cluster %s: %w", message.GetName(), err)
				}
			}
			static.Clusters = append(static.Clusters, message)
		case *listenerv3.Listener:
			static.Listeners = append(static.Listeners, message)
		case *routev3.RouteConfiguration:
			manager := model.NetworkFilter("http", &hcmv3.HttpConnectionManager{
				StatPrefix: "routes", RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: message},
				HttpFilters: []*hcmv3.HttpFilter{model.HTTPFilter("router", &routerv3.Router{})},
			})
			static.Listeners = append(static.Listeners, &listenerv3.Listener{
				Name:         "routes " + message.GetName(),
				Address:      &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: fmt.Sprint("@routes/", i)}}},
				FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{manager}}},
			})
		}
	}
	return &bootstrapv3.Bootstrap{
		Node:             &corev3.Node{Id: "n", Cluster: "c"},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: apiConfigSource}, StaticResources: static,
	}, nil
}

// withoutSecrets removes the secrets from a transport socket of a cluster: Envoy 1.40 crashes when a static cluster
// requests secrets before the stream exists.
func withoutSecrets(socket *corev3.TransportSocket) error {
	context, wrapper := &tlsv3.UpstreamTlsContext{}, &proxyprotocolv3.ProxyProtocolUpstreamTransport{}
	if socket.GetTypedConfig().MessageIs(wrapper) {
		if err := socket.GetTypedConfig().UnmarshalTo(wrapper); err != nil {
			return err
		}
		if err := withoutSecrets(wrapper.GetTransportSocket()); err != nil {
			return err
		}
		socket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: model.ToAny(wrapper)}
		return nil
	}
	if !socket.GetTypedConfig().MessageIs(context) {
		return nil
	}
	if err := socket.GetTypedConfig().UnmarshalTo(context); err != nil {
		return err
	}
	common := context.GetCommonTlsContext()
	common.TlsCertificateSdsSecretConfigs = nil
	if v := common.GetCombinedValidationContext(); v != nil {
		limits := v.GetDefaultValidationContext()
		limits.MatchTypedSubjectAltNames = nil // Envoy accepts them only with a trusted authority
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: limits}
	}
	socket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: model.ToAny(context)}
	return nil
}
