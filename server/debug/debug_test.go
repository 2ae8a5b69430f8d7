package debug_test

import (
	"bytes"
	"context"
	"io"
	"iter"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/server/debug"
	"tributary/server/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeClients are clients with a fixed status.
type fakeClients struct {
	clients []xds.ClientStatus
	served  map[uint64][]xds.Served
}

func (p *fakeClients) EachClient() iter.Seq[xds.ClientStatus] { return slices.Values(p.clients) }
func (p *fakeClients) Served(stream uint64) []xds.Served      { return p.served[stream] }
func (p *fakeClients) connect(id uint64, t ...xds.TypeStatus) *fakeClients {
	p.clients = append(p.clients, xds.ClientStatus{StreamID: id, Node: &corev3.Node{Id: "sidecar~10.0.0." + string(rune('0'+id)) +
		"~web.shop~shop.svc", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		"CLUSTER_ID": structpb.NewStringValue("vm"), "SECRET": structpb.NewStringValue("s3cret"),
		"ISTIO_VERSION": structpb.NewStringValue("1.27.9"),
	}}}, Types: t})
	return p
}

var sentAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// clientsInAllConditions returns a client for each condition, one of istioctl, and one without requests.
func clientsInAllConditions() *fakeClients {
	p := &fakeClients{}
	p.connect(1, xds.TypeStatus{TypeURL: "a", Synced: true, SentNonce: "1", AckedNonce: "1", SentVersion: "v", SentAt: sentAt})
	p.connect(2, xds.TypeStatus{TypeURL: "a", SentNonce: "2", AckedNonce: "1", SentAt: sentAt},
		xds.TypeStatus{
			TypeURL: "b", SentNonce: "3", NackNonce: "3", NackError: "no", SentAt: sentAt,
			NackAt: sentAt,
		}, xds.TypeStatus{TypeURL: "c"})
	p.connect(3, xds.TypeStatus{TypeURL: "istio.io/debug/syncz"})
	p.clients = append(p.clients, xds.ClientStatus{StreamID: 4}) // it has sent no request yet
	return p
}

// conditions are those of the types of each client in an answer.
func conditions(configs []*statusv3.ClientConfig) map[string][]string {
	byNode := make(map[string][]string)
	for _, c := range configs {
		for _, g := range c.GetGenericXdsConfigs() {
			byNode[c.GetNode().GetId()] = append(byNode[c.GetNode().GetId()], g.GetTypeUrl()+" "+g.GetConfigStatus().String())
		}
	}
	return byNode
}

const first, second = "sidecar~10.0.0.1~web.shop~shop.svc", "sidecar~10.0.0.2~web.shop~shop.svc"

func TestCSDS_ReportsSyncState(t *testing.T) {
	csds := statusv3.NewClientStatusDiscoveryServiceClient(serve(t, clientsInAllConditions()))
	answer, err := csds.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	require.NoError(t, err)
	require.Equal(t, map[string][]string{first: {"a SYNCED"}, second: {"a STALE", "b ERROR", "c NOT_SENT"}}, conditions(answer.GetConfig()))
	require.Equal(t, "no", answer.GetConfig()[1].GetGenericXdsConfigs()[1].GetErrorState().GetDetails())
	require.NotContains(t, answer.String(), "s3cret", "metadata that no tool asks for")
}

// istioctl prints node metadata on terminals.
func TestCSDS_EscapesMetadata(t *testing.T) {
	p := (&fakeClients{}).connect(1, xds.TypeStatus{TypeURL: "a"})
	p.clients[0].Node.Metadata.Fields["ISTIO_VERSION"] = structpb.NewStringValue("1.27\u202eEVIL\x1b[31m")
	const evil = "a\u202e\x1b[31m"
	p.clients[0].Node.Locality = &corev3.Locality{Region: evil, Zone: evil, SubZone: evil}
	csds := statusv3.NewClientStatusDiscoveryServiceClient(serve(t, p))
	answer, err := csds.FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	require.NoError(t, err)
	const shown = `a\u202e\x1b[31m`
	locality := &corev3.Locality{Region: shown, Zone: shown, SubZone: shown}
	require.Equal(t, locality.String(), answer.GetConfig()[0].GetNode().GetLocality().String())
	require.Equal(t, `1.27\u202eEVIL\x1b[31m`, answer.GetConfig()[0].GetNode().GetMetadata().GetFields()["ISTIO_VERSION"].GetStringValue())
}

func TestCSDS_SelectsNodesByID(t *testing.T) {
	csds := statusv3.NewClientStatusDiscoveryServiceClient(serve(t, clientsInAllConditions()))
	matching := func(matchers string) (*statusv3.ClientStatusResponse, error) {
		var request statusv3.ClientStatusRequest
		require.NoError(t, protojson.Unmarshal([]byte(`{"nodeMatchers": [`+matchers+`]}`), &request))
		return csds.FetchClientStatus(t.Context(), &request)
	}
	for matchers, want := range map[string]int{
		`{"nodeId": {"exact": "` + first + `"}}`:                                   1,
		`{"nodeId": {"ignoreCase": true, "prefix": "SIDECAR~"}}`:                   2,
		`{"nodeId": {"suffix": ".svc"}}`:                                           2,
		`{"nodeId": {"contains": "10.0.0.2"}}`:                                     1,
		`{"nodeId": {"exact": "nobody"}}, {"nodeId": {"exact": "` + second + `"}}`: 1,
	} {
		answer, err := matching(matchers)
		require.NoError(t, err, matchers)
		require.Len(t, answer.GetConfig(), want, matchers)
	}
	for _, wrong := range []string{
		`{}`, `{"nodeId": {}}`, `{"nodeId": {"safeRegex": {"regex": ".*"}}}`,
		`{"nodeMetadatas": [{"value": {"presentMatch": true}}]}`,
		`{"nodeId": {"exact": "` + first + `"}, "nodeMetadatas": [{"value": {"presentMatch": true}}]}`,
	} {
		_, err := matching(wrong)
		require.Equal(t, codes.InvalidArgument, status.Code(err), wrong)
		require.ErrorContains(t, err, "nodes are selected by node_id", wrong)
	}
	_, err := matching(strings.TrimSuffix(strings.Repeat(`{"nodeId": {"exact": "a"}},`, 101), ","))
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "maxMatchers")
}

// serve has questions answered on a port. The rest is not served.
func serve(t *testing.T, p *fakeClients) *grpc.ClientConn {
	t.Helper()
	q := debug.NewIstioctl()
	q.SetClients(p)
	engine := xds.NewServer(q, xds.Options{Log: slog.New(slog.DiscardHandler)})
	server := grpc.NewServer(engine.ServerOptions()...)
	engine.Register(server)
	debug.NewCSDS(p).Register(server)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		engine.Close()
		require.NoError(t, <-served)
	})
	return conn
}

// ask sends one request and returns the first answer.
func ask(t *testing.T, c discoveryv3.AggregatedDiscoveryServiceClient, typeURL string, names ...string) (*discoveryv3.DiscoveryResponse,
	error,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := c.StreamAggregatedResources(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "istioctl"}, TypeUrl: typeURL, ResourceNames: names}))
	return stream.Recv()
}

func TestIstioctl_AnswersLikeIstiod(t *testing.T) {
	clients := clientsInAllConditions()
	cluster, err := anypb.New(&clusterv3.Cluster{Name: "outbound|80||web"})
	require.NoError(t, err)
	body, err := proto.Marshal(cluster)
	require.NoError(t, err)
	clients.served = map[uint64][]xds.Served{1: {{
		TypeURL: xds.ClusterURL, Version: "v7",
		Entries: []*xds.Entry{{Name: "outbound|80||web", Version: "1", Any: body}},
	}}}
	c := discoveryv3.NewAggregatedDiscoveryServiceClient(serve(t, clients))

	answer, err := ask(t, c, "istio.io/debug/syncz")
	require.NoError(t, err)
	var configs []*statusv3.ClientConfig
	for _, r := range answer.GetResources() {
		config := &statusv3.ClientConfig{}
		require.NoError(t, r.UnmarshalTo(config))
		configs = append(configs, config)
	}
	require.Equal(t, map[string][]string{first: {"a SYNCED"}, second: {"a STALE", "b ERROR", "c NOT_SENT"}}, conditions(configs))

	answer, err = ask(t, c, "istio.io/debug/config_dump", "web.shop")
	require.NoError(t, err)
	clusters := &adminv3.ClustersConfigDump{}
	require.Len(t, answer.GetResources(), 7)
	require.NoError(t, answer.GetResources()[1].UnmarshalTo(clusters))
	require.Equal(t, "v7", clusters.GetVersionInfo())
	require.Equal(t, body, func() []byte { b, _ := proto.Marshal(clusters.GetDynamicActiveClusters()[0].GetCluster()); return b }())
	answer, err = ask(t, c, "istio.io/debug/config_dump", "nobody")
	require.NoError(t, err)
	require.Empty(t, answer.GetResources())

	for typeURL, code := range map[string]codes.Code{
		"istio.io/debug":             codes.Unimplemented,
		"istio.io/debug/config_dump": codes.InvalidArgument, "istio.io/debug/other": codes.Unimplemented,
	} {
		_, err = ask(t, c, typeURL)
		require.Equal(t, code, status.Code(err), typeURL)
	}
}

// closingWriter is the writer to a client that disconnects after some writes.
type closingWriter int

func (f *closingWriter) Write(b []byte) (int, error) {
	if *f == 0 {
		return 0, io.ErrClosedPipe
	}
	*f--
	return len(b), nil
}

// Virtual hosts that a client requests by name are listed in their route configurations, as in Envoy's own dump;
// secrets have only names and versions.
func TestDump_OnDemandHostsAndSecrets(t *testing.T) {
	entry := func(name string, m proto.Message) *xds.Entry {
		body, err := anypb.New(m)
		require.NoError(t, err)
		b, err := proto.Marshal(body)
		require.NoError(t, err)
		return &xds.Entry{Name: name, Version: "v", Any: b}
	}
	served := []xds.Served{
		{TypeURL: xds.ClusterURL, Version: "v\"1", Entries: []*xds.Entry{entry("c", &clusterv3.Cluster{Name: "c"})}},
		{TypeURL: xds.EndpointURL, Entries: []*xds.Entry{entry("c", &endpointv3.ClusterLoadAssignment{ClusterName: "c"})}},
		{TypeURL: xds.RouteURL, Entries: []*xds.Entry{
			entry("80", &routev3.RouteConfiguration{Name: "80"}),
			entry("81", &routev3.RouteConfiguration{Name: "81"}),
		}},
		{TypeURL: xds.VHostURL, Entries: []*xds.Entry{entry("80/a", &routev3.VirtualHost{Name: "80/a"})}},
		{TypeURL: xds.SecretURL, Entries: []*xds.Entry{entry("key",
			&tlsv3.Secret{Name: "key", Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{
				Secret: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "s3cret"}},
			}}})}},
	}
	for _, endpoints := range []bool{true, false} {
		var written bytes.Buffer
		require.NoError(t, debug.WriteDump(&written, served, endpoints))
		configDump := &adminv3.ConfigDump{}
		require.NoError(t, protojson.Unmarshal(written.Bytes(), configDump), written.String())
		parts, err := debug.DumpParts(served)
		require.NoError(t, err)
		require.Equal(t, protojson.Format(&adminv3.ConfigDump{Configs: parts}),
			protojson.Format(&adminv3.ConfigDump{Configs: configDump.GetConfigs()[:7]}))
		require.Len(t, configDump.GetConfigs(), map[bool]int{true: 8, false: 7}[endpoints])
		if endpoints {
			members := &adminv3.EndpointsConfigDump{}
			require.NoError(t, configDump.GetConfigs()[7].UnmarshalTo(members))
			require.Len(t, members.GetDynamicEndpointConfigs(), 1)
		}
	}
	for writes := range 5 {
		broken := closingWriter(writes)
		require.ErrorIs(t, debug.WriteDump(&broken, served, false), io.ErrClosedPipe)
		require.Zero(t, broken, "no part is made for a closed connection")
	}
	parts, err := debug.DumpParts(served)
	require.NoError(t, err)
	dump := &adminv3.ConfigDump{Configs: parts}
	text, err := protojson.Marshal(dump)
	require.NoError(t, err)
	require.NotContains(t, string(text), "s3cret")
	secrets := &adminv3.SecretsConfigDump{}
	require.NoError(t, dump.GetConfigs()[5].UnmarshalTo(secrets))
	require.Equal(t, "key", secrets.GetDynamicActiveSecrets()[0].GetName())
	routes, first := &adminv3.RoutesConfigDump{}, &routev3.RouteConfiguration{}
	require.NoError(t, dump.GetConfigs()[4].UnmarshalTo(routes))
	require.NoError(t, routes.GetDynamicRouteConfigs()[0].GetRouteConfig().UnmarshalTo(first))
	require.Equal(t, "80/a", first.GetVirtualHosts()[0].GetName())
}
