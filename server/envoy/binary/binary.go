// Package binary has the binary of an Envoy check resources.
package binary

import (
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
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/envoy/model"
)

// maxRun is how long one run of the binary may take.
const maxRun = time.Minute

// envoyVersion matches what an Envoy with any file name prints: its path, and revision/version/….
var envoyVersion = regexp.MustCompile(`(?m)  version: [0-9a-f]{8,}/[0-9]+\.[0-9]+`)

// maxRejections is how many rejections are looked for.
const maxRejections = 20

// Rejection is what Envoy says of resources: of one, or of several that it rejects only together.
type Rejection struct {
	Resources []proto.Message
	Text      string
}

type checker struct {
	path, dir string
	found     []Rejection
}

// Check returns what the Envoy of a path rejects of resources of one client. A RouteConfiguration has only those of its virtual hosts that
// are rejected.
func Check(ctx context.Context, path string, all []proto.Message) ([]Rejection, error) {
	dir, err := os.MkdirTemp("", "tributary-envoy-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if found, err := exec.LookPath(path); err == nil {
		if path, err = filepath.Abs(found); err != nil {
			return nil, err
		}
	}
	c := &checker{path: path, dir: dir}
	out, err := c.run(ctx, "--version")
	if err == nil && !envoyVersion.MatchString(out) {
		err = errors.New("--version does not name an Envoy")
	}
	if err != nil {
		return nil, fmt.Errorf("check with the Envoy %s: %w", path, err)
	}
	if text, err := c.validate(ctx, nil, all); err != nil || text == "" {
		return nil, err
	}
	var base, clusters, others []proto.Message
	for _, m := range all {
		switch m := m.(type) {
		case *clusterv3.Cluster:
			clusters = append(clusters, m)
		case *endpointv3.ClusterLoadAssignment:
			base = append(base, m)
		case *listenerv3.Listener, *routev3.RouteConfiguration:
			others = append(others, m)
		}
	}
	if err := c.find(ctx, base, clusters); err != nil {
		return c.found, err
	}
	rejected := make(map[proto.Message]bool)
	for _, r := range c.found {
		for _, m := range r.Resources {
			rejected[m] = true
		}
	}
	for _, m := range clusters {
		if !rejected[m] {
			base = append(base, m)
		}
	}
	return c.found, c.find(ctx, base, others)
}

// find finds which of some resources are rejected, by halves: Envoy stops at the first, and does not always name it.
func (c *checker) find(ctx context.Context, base, some []proto.Message) error {
	if len(some) == 0 || len(c.found) == maxRejections {
		return nil
	}
	text, err := c.validate(ctx, base, some)
	if err != nil || text == "" {
		return err
	}
	before := len(c.found)
	for _, half := range halves(some) {
		if err := c.find(ctx, base, half); err != nil {
			return err
		}
	}
	if len(c.found) == before {
		c.found = append(c.found, Rejection{some, text})
	}
	return nil
}

func halves(all []proto.Message) [][]proto.Message {
	if n := len(all) / 2; n > 0 {
		return [][]proto.Message{all[:n], all[n:]}
	}
	r, is := all[0].(*routev3.RouteConfiguration)
	n := len(r.GetVirtualHosts()) / 2
	if !is || n == 0 {
		return nil
	}
	first, second := proto.CloneOf(r), proto.CloneOf(r)
	first.VirtualHosts, second.VirtualHosts = first.VirtualHosts[:n], second.VirtualHosts[n:]
	return [][]proto.Message{{first}, {second}}
}

// validate returns what Envoy says if it rejects some of the resources.
func (c *checker) validate(ctx context.Context, base, some []proto.Message) (text string, err error) {
	boot, err := bootstrap(slices.Concat(base, some))
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
	if _, after, found := strings.Cut(text, file+"': "); found {
		text = after
	}
	return strings.TrimSpace(text) + " (" + err.Error() + ")", nil
}

func (c *checker) run(ctx context.Context, args ...string) (out string, err error) {
	ctx, stop := context.WithTimeout(ctx, maxRun)
	defer stop()
	cmd := exec.CommandContext(ctx, c.path, args...) //nolint:gosec // the user names it
	cmd.Dir = c.dir                                  // Envoy opens files of access logs with relative names
	b, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s %s: %w", c.path, strings.Join(args, " "), ctx.Err())
	}
	return string(b), err
}

// bootstrap returns one that has all resources as static ones. Endpoints are within their clusters, and each RouteConfiguration in a
// listener of its own.
func bootstrap(all []proto.Message) (*bootstrapv3.Bootstrap, error) {
	ads := &corev3.ApiConfigSource{
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
	for _, m := range all {
		if e, is := m.(*endpointv3.ClusterLoadAssignment); is {
			endpoints[e.GetClusterName()] = e
		}
	}
	router := &hcmv3.HttpFilter{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{
		TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
	}}
	for i, m := range all {
		switch m := m.(type) {
		case *clusterv3.Cluster:
			m = proto.CloneOf(m)
			if e := m.GetEdsClusterConfig(); e != nil {
				name := e.GetServiceName()
				if name == "" {
					name = m.GetName()
				}
				m.ClusterDiscoveryType, m.EdsClusterConfig, m.LoadAssignment = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}, nil,
					endpoints[name]
			}
			sockets := []*corev3.TransportSocket{m.GetTransportSocket()}
			for _, s := range m.GetTransportSocketMatches() {
				sockets = append(sockets, s.GetTransportSocket())
			}
			for _, s := range sockets {
				if err := withoutSecrets(s); err != nil {
					return nil, fmt.Errorf("cluster %s: %w", m.GetName(), err)
				}
			}
			static.Clusters = append(static.Clusters, m)
		case *listenerv3.Listener:
			static.Listeners = append(static.Listeners, m)
		case *routev3.RouteConfiguration:
			config, err := anypb.New(&hcmv3.HttpConnectionManager{
				StatPrefix: "routes", RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: m},
				HttpFilters: []*hcmv3.HttpFilter{router},
			})
			if err != nil {
				return nil, fmt.Errorf("routes %s: %w", m.GetName(), err)
			}
			static.Listeners = append(static.Listeners, &listenerv3.Listener{
				Name:    "routes " + m.GetName(),
				Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: fmt.Sprint("@routes/", i)}}},
				FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
					Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config},
				}}}},
			})
		}
	}
	return &bootstrapv3.Bootstrap{
		Node:             &corev3.Node{Id: "n", Cluster: "c"},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: ads}, StaticResources: static,
	}, nil
}

// withoutSecrets makes a transport socket of a cluster ask for no secrets: Envoy 1.40 crashes over a static cluster that asks for some on a
// stream that is not there yet.
func withoutSecrets(socket *corev3.TransportSocket) error {
	context := &tlsv3.UpstreamTlsContext{}
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
		limits.MatchTypedSubjectAltNames = nil // Envoy takes them only with something to verify by
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: limits}
	}
	config, err := anypb.New(context)
	socket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: config}
	return err
}
