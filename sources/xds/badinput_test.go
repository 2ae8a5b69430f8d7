package xds

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	mcpv1alpha1 "istio.io/api/mcp/v1alpha1"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"tributary/internal/testutil"
	"tributary/resource"
	"tributary/sources"
)

// onlyEntries keeps tests to one kind, of one version.
var onlyEntries = []string{entriesV1}

// fromIstiod reads the ServiceEntries of a fake istiod that has the good ones.
func fromIstiod(t *testing.T, good ...*anypb.Any) (*fakeIstiod, *reader) {
	f := newFakeIstiod()
	f.set(entriesV1, good...)
	r := read(t, Settings{SubscribedResources: onlyEntries}, scripted(t, f.serve))
	await(t, "it is synced", r.table.Synced)
	return f, r
}

func (r *reader) names() string {
	var names []string
	for res := range r.table.Snapshot().All() {
		names = append(names, res.Key().Name)
	}
	return strings.Join(names, " ")
}

func (r *reader) awaitNames(t *testing.T, want string) {
	t.Helper()
	await(t, "there is "+want, func() bool { return r.names() == want })
}

func (r *reader) awaitState(t *testing.T, state sources.State, message string) {
	t.Helper()
	var st sources.Status
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if st = r.status(); st.State == state && strings.Contains(st.Message, message) {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(t, "not in time", "want %s: %s\ngot  %s: %s", state, message, st.State, st.Message)
		}
	}
}

// Each of the following is a row of the table in README.md.

func TestServer_EndsEachStream(t *testing.T) {
	r := read(t, Settings{}, scripted(t, func(stream) error { return nil }))
	r.awaitState(t, sources.Unreachable, "the server ended it")
	require.False(t, r.status().Synced)
}

func TestServer_NeverAnswers(t *testing.T) {
	t.Parallel()
	address := scripted(t, func(s stream) error {
		<-s.Context().Done()
		return nil
	})
	r := read(t, Settings{Mode: "sotw"}, address)
	r.awaitState(t, sources.Starting, address+" has not answered yet for security.istio.io/v1/AuthorizationPolicy, ")
	r.awaitState(t, sources.Starting, "and 10 more")
	require.False(t, r.status().Synced)
}

func TestServer_SilentForOneType(t *testing.T) {
	f := newFakeIstiod()
	r := read(t, Settings{Mode: "sotw", SubscribedResources: []string{entriesV1, "Gateway"}}, scripted(t, func(s stream) error {
		return f.serve(deaf{s, "Gateway"})
	}))
	r.awaitState(t, sources.Starting, "networking.istio.io/v1/Gateway")
	require.False(t, r.status().Synced)
}

// deaf does not answer for a kind.
type deaf struct {
	stream
	kind string
}

func (d deaf) Send(discoveryResponse *discoveryv3.DiscoveryResponse) error {
	if strings.HasSuffix(discoveryResponse.GetTypeUrl(), d.kind) {
		return nil
	}
	return d.stream.Send(discoveryResponse)
}

func TestUnknownTypesAndNonces_Ignored(t *testing.T) {
	answered := make(chan *discoveryv3.DiscoveryRequest, 10)
	reader := read(t, Settings{Mode: "sotw", SubscribedResources: onlyEntries}, scripted(t, func(s stream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		for _, discoveryResponse := range []*discoveryv3.DiscoveryResponse{
			{TypeUrl: "unheard.of/v1/Thing", Nonce: "1", Resources: []*anypb.Any{wrapped(t, "shop/thing", "thing.example.com")}},
			{TypeUrl: "", Nonce: "1"},
			{TypeUrl: entriesV1, Nonce: "", Resources: []*anypb.Any{wrapped(t, "shop/a", "a.example.com")}},
			{TypeUrl: entriesV1, Nonce: "1", Resources: []*anypb.Any{wrapped(t, "shop/b", "b.example.com")}},
			{TypeUrl: entriesV1, Nonce: "1", Resources: []*anypb.Any{wrapped(t, "shop/c", "c.example.com")}},
		} {
			if err := s.Send(discoveryResponse); err != nil {
				return err
			}
		}
		for {
			discoveryRequest, err := s.Recv()
			if err != nil {
				return err
			}
			answered <- discoveryRequest
		}
	}))
	reader.awaitNames(t, "c")
	for _, nonce := range []string{"", "1", "1"} {
		got := <-answered
		require.Equal(t, entriesV1, got.GetTypeUrl(), "to answer for a type is to ask for it")
		require.Equal(t, nonce, got.GetResponseNonce())
	}
}

func TestDuplicates(t *testing.T) {
	fakeIstiod, reader := fromIstiod(t, wrapped(t, "shop/a", "first.example.com"))
	before := reader.table.Snapshot().Get(key("a")).Version()
	fakeIstiod.set(entriesV1, wrapped(t, "shop/a", "first.example.com"), wrapped(t, "shop/a", "second.example.com"),
		wrapped(t, "shop/b", "b.example.com"))
	reader.awaitNames(t, "a b")
	require.NotEqual(t, before, reader.table.Snapshot().Get(key("a")).Version())
	require.Equal(t, "second.example.com", hostOf(t, reader.table.Snapshot().Get(key("a"))))
	require.Contains(t, <-fakeIstiod.nacks, "ServiceEntry shop/a: sent twice in one response; the last one counts")
	reader.awaitState(t, sources.Degraded, "shop/a: sent twice")
	fakeIstiod.set(entriesV1, wrapped(t, "shop/a", "first.example.com"), wrapped(t, "shop/b", "b.example.com"))
	reader.awaitState(t, sources.Healthy, "")
}

// TestClaimedVersion_OfLastDuplicate has a server resume a reader that was sent something twice.
func TestClaimedVersion_OfLastDuplicate(t *testing.T) {
	claimed := make(chan map[string]string, 1)
	address := serveDelta(t, func(before int, s deltaStream) error {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: entriesV1, Nonce: "n", SystemVersionInfo: "v"}
		if before == 0 {
			out.Resources = []*discoveryv3.Resource{
				{Name: "shop/a", Version: "1", Resource: wrapped(t, "shop/a", "one.example.com")},
				{Name: "shop/a", Version: "2", Resource: wrapped(t, "shop/a", "two.example.com")},
			}
		} else {
			claimed <- r.GetInitialResourceVersions()
		}
		if err := s.Send(out); err != nil {
			return err
		}
		if _, err := s.Recv(); err != nil || before == 0 {
			return status.Error(codes.Unavailable, "restart")
		}
		<-s.Context().Done()
		return nil
	})
	r := read(t, Settings{Mode: "delta", SubscribedResources: onlyEntries}, address)
	require.Equal(t, map[string]string{"shop/a": "2"}, <-claimed)
	require.Equal(t, "two.example.com", hostOf(t, r.table.Snapshot().Get(key("a"))))
}

func TestResourcesOverLimit_Refused(t *testing.T) {
	fakeIstiod, reader := fromIstiod(t, wrapped(t, "shop/a", "a.example.com"))
	many := make([]*anypb.Any, maxResources+1)
	for i := range many {
		many[i] = &anypb.Any{}
	}
	fakeIstiod.set(entriesV1, many...)
	reader.awaitState(t, sources.Unreachable, "the answer of 500001 resources is refused: it has more than 500000")
	require.Equal(t, "a", reader.names())
}

func TestResponseOverLimit_Refused(t *testing.T) {
	fakeIstiod := newFakeIstiod()
	fakeIstiod.set(entriesV1, wrapped(t, "shop/a", "a.example.com"))
	reader := read(t, Settings{Mode: "sotw", SubscribedResources: onlyEntries, MaxMessageBytes: 1 << 20},
		scripted(t, fakeIstiod.serve, grpc.MaxSendMsgSize(1<<30)))
	reader.awaitNames(t, "a")
	fakeIstiod.set(entriesV1, &anypb.Any{TypeUrl: resource.MCPTypeURL, Value: make([]byte, 200<<20)})
	reader.awaitState(t, sources.Unreachable, "received message larger than max (2097")
	require.Equal(t, "a", reader.names())
}

func TestTruncatedResource_KeepsLastGood(t *testing.T) {
	fakeIstiod, reader := fromIstiod(t, wrapped(t, "shop/a", "a.example.com"), wrapped(t, "shop/b", "b.example.com"),
		wrapped(t, "shop/gone", "g.example.com"))
	cut := wrapped(t, "shop/a", "changed.example.com")
	cut.Value = cut.Value[:len(cut.Value)-5]
	fakeIstiod.set(entriesV1, cut, wrapped(t, "shop/b", "changed.example.com"))
	reader.awaitNames(t, "a b")
	await(t, "a is quarantined", func() bool { return len(reader.status().Quarantined) == 1 })
	q := reader.status().Quarantined[0]
	require.Equal(t, key("a"), q.Key())
	require.True(t, q.LastGoodServes)
	require.Contains(t, <-fakeIstiod.nacks, "ServiceEntry shop/a: ServiceEntry: decode: ")
	fakeIstiod.set(entriesV1, cut, wrapped(t, "shop/b", "again.example.com"))
	require.Contains(t, <-fakeIstiod.nacks, "ServiceEntry shop/a: ", "it is rejected as long as it is sent")
	require.Len(t, reader.status().Quarantined, 1)
	fakeIstiod.set(entriesV1, wrapped(t, "shop/b", "again.example.com"))
	reader.awaitNames(t, "b")
	await(t, "the quarantine ends", func() bool { return len(reader.status().Quarantined) == 0 })
}

// TestUnnamedResource_BlocksDeletions sends resources too broken for a name, and messages of another type.
func TestUnnamedResource_BlocksDeletions(t *testing.T) {
	raw, err := anypb.New(durationpb.New(5))
	require.NoError(t, err)
	body, err := anypb.New(specOf(t, entry(t, "a", "a.example.com")))
	require.NoError(t, err)
	for name, broken := range map[string]*anypb.Any{
		"noise":                    {TypeUrl: resource.MCPTypeURL, Value: []byte("\xff\xff\xff")},
		"empty":                    {},
		"a message of another API": raw,
		"the body as it is":        body,
	} {
		t.Run(name, func(t *testing.T) {
			fakeIstiod, r := fromIstiod(t, wrapped(t, "shop/a", "a.example.com"), wrapped(t, "shop/b", "b.example.com"))
			fakeIstiod.set(entriesV1, broken, wrapped(t, "shop/c", "c.example.com"))
			r.awaitNames(t, "a b c") // any of them may be the broken one
			r.awaitState(t, sources.Degraded, "1 resources cannot be read and have no name: until that ends, no resource of the type is deleted")
			require.Contains(t, <-fakeIstiod.nacks, entriesV1+" (unnamed): ServiceEntry: ")
			require.Len(t, r.status().Quarantined, 1)
			fakeIstiod.set(entriesV1, wrapped(t, "shop/c", "c.example.com"))
			r.awaitNames(t, "c")
			r.awaitState(t, sources.Healthy, "")
			require.Empty(t, r.status().Quarantined)
		})
	}
}

func TestMalformedNames_Rejected(t *testing.T) {
	fakeIstiod, r := fromIstiod(t, wrapped(t, "shop/a", "a.example.com"))
	fakeIstiod.set(entriesV1, wrapped(t, "slashless", "s.example.com"), wrapped(t, "too/many/slashes", "s.example.com"),
		wrapped(t, "shop/", "s.example.com"), wrapped(t, "/from-a-file", "f.example.com"), wrapped(t, "shop/b", "b.example.com"))
	r.awaitNames(t, "from-a-file b")
	require.NotNil(t, r.table.Snapshot().Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: "from-a-file"}))
	reason := <-fakeIstiod.nacks
	for _, name := range []string{`"slashless"`, `"too/many/slashes"`, `"shop/"`} {
		require.Contains(t, reason, name)
	}
	require.Len(t, r.status().Quarantined, 3)
}

func TestInvalidResource_KeepsLastGood(t *testing.T) {
	f, reader := fromIstiod(t, wrapped(t, "shop/a", "a.example.com"), wrapped(t, "shop/b", "b.example.com"))
	good := reader.table.Snapshot().Get(key("a")).Version()
	f.set(entriesV1, wrapped(t, "shop/a", "not a host"), wrapped(t, "shop/b", "changed.example.com"))
	require.Contains(t, <-f.nacks, "ServiceEntry shop/a: ")
	require.Equal(t, good, reader.table.Snapshot().Get(key("a")).Version())
	require.Len(t, reader.status().Quarantined, 1)
	require.NotContains(t, reader.status().Quarantined[0].Reason, "shop/b")
}

func TestAlternatingSets_HoldLoss(t *testing.T) {
	many := make([]*anypb.Any, 30)
	for i := range many {
		many[i] = wrapped(t, fmt.Sprintf("shop/s%02d", i), fmt.Sprintf("s%02d.example.com", i))
	}
	fakeIstiod, reader := fromIstiod(t, many...)
	var expected []string
	for i := range many {
		expected = append(expected, fmt.Sprintf("s%02d", i))
	}
	full := strings.Join(expected, " ")
	require.Equal(t, full, reader.names())
	for range 5 {
		fakeIstiod.set(entriesV1)
		await(t, "the loss is held", func() bool { return reader.status().Held != nil })
		require.Equal(t, full, reader.names())
		fakeIstiod.set(entriesV1, many...)
		await(t, "the hold ends", func() bool { return reader.status().Held == nil })
		require.Equal(t, full, reader.names())
	}
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (bytesCodec) Unmarshal([]byte, any) error   { return nil }
func (bytesCodec) Name() string                  { return "proto" }

func TestRevokedToken_Denied(t *testing.T) {
	certs := testutil.NewAuthority(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("good"), 0o600))
	fakeIstiod := newFakeIstiod()
	fakeIstiod.set(entriesV1, wrapped(t, "shop/a", "a.example.com"))
	valid := make(chan string, 1)
	valid <- "Bearer good"
	address := scripted(t, func(s stream) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		want := <-valid
		valid <- want
		if got := md.Get("authorization"); len(got) != 1 || got[0] != want {
			return status.Error(codes.Unauthenticated, "the token is revoked")
		}
		return fakeIstiod.serve(s)
	}, grpc.Creds(loopback(certs, false)))
	reader := read(t, Settings{
		Mode: "sotw", SubscribedResources: onlyEntries, TokenFile: token, TLS: &TLS{Mode: "SIMPLE", CACertificates: certs.PEM},
	}, address)
	reader.awaitNames(t, "a")
	<-valid
	valid <- "Bearer better"
	fakeIstiod.end()
	reader.awaitState(t, sources.Denied, "the token is revoked")
	require.Equal(t, "a", reader.names())
	require.NoError(t, os.WriteFile(token, []byte("better"), 0o600))
	reader.awaitState(t, sources.Healthy, "")
}

func TestExpiredCertificate_Unreachable(t *testing.T) {
	certs := testutil.NewAuthority(t)
	f := newFakeIstiod()
	f.set(entriesV1, wrapped(t, "shop/a", "a.example.com"))
	first := scripted(t, f.serve, grpc.Creds(loopback(certs, true)))
	r := read(t, Settings{SubscribedResources: onlyEntries, TLS: &TLS{Mode: "SIMPLE", CACertificates: certs.PEM}}, first)
	r.awaitState(t, sources.Unreachable, "certificate has expired")
}

func TestObjects_WithoutCreationTime(t *testing.T) {
	fakeIstiod, reader := fromIstiod(t, wrapped(t, "shop/a", "a.example.com"))
	a := reader.table.Snapshot().Get(key("a"))
	require.Equal(t, entry(t, "a", "a.example.com").Version(), a.Version(), "of the content")
	require.Zero(t, a.Created())
	publishes := reader.status().Publishes
	fakeIstiod.set(entriesV1, wrapped(t, "shop/a", "a.example.com"))
	fakeIstiod.set(entriesV1, wrapped(t, "shop/a", "a.example.com"), wrapped(t, "shop/b", "b.example.com"))
	reader.awaitNames(t, "a b")
	require.Equal(t, publishes+1, reader.status().Publishes, "an equal resource is not published again")
}

func TestMeshConfig_SubscribedByDefault(t *testing.T) {
	const meshConfig = "core/v1alpha1/MeshConfig"
	fakeIstiod := newFakeIstiod()
	fakeIstiod.set(entriesV1, wrapped(t, "shop/a", "a.example.com"))
	mesh, err := anypb.New(&meshv1alpha1.MeshConfig{RootNamespace: "istio-system"})
	require.NoError(t, err)
	fakeIstiod.set(meshConfig, mesh)
	address := scripted(t, fakeIstiod.serve)
	everyKind := read(t, Settings{}, address)
	await(t, "both are there", func() bool { return everyKind.table.Snapshot().Len() == 2 })
	onlyEntryKind := read(t, Settings{SubscribedResources: []string{"ServiceEntry"}}, address)
	await(t, "it is synced", onlyEntryKind.table.Synced)
	require.Equal(t, "a", onlyEntryKind.names())
}

// TestMeshConfigName_KeptAcrossRestart has a delta server that calls the only one as it likes.
func TestMeshConfigName_KeptAcrossRestart(t *testing.T) {
	const meshConfig = "core/v1alpha1/MeshConfig"
	body, err := anypb.New(&meshv1alpha1.MeshConfig{RootNamespace: "istio-system"})
	require.NoError(t, err)
	for name, called := range map[string]string{"as we do": bareName, "otherwise": "mesh"} {
		t.Run(name, func(t *testing.T) {
			claimed := make(chan map[string]string, 1)
			address := serveDelta(t, func(before int, s deltaStream) error {
				r, err := s.Recv()
				if err != nil {
					return err
				}
				out := &discoveryv3.DeltaDiscoveryResponse{
					TypeUrl: meshConfig, Nonce: "n", SystemVersionInfo: "v",
					Resources: []*discoveryv3.Resource{{Name: called, Version: "7", Resource: body}},
				}
				for name := range r.GetInitialResourceVersions() {
					if name != called {
						out.RemovedResources = append(out.RemovedResources, name)
					}
				}
				if err := s.Send(out); err != nil {
					return err
				}
				if _, err := s.Recv(); err == nil && before > 0 {
					claimed <- r.GetInitialResourceVersions()
				}
				<-s.Context().Done()
				return nil
			})
			r := read(t, Settings{Mode: "delta", SubscribedResources: []string{meshConfig}}, address)
			r.awaitNames(t, "istio")
			require.NoError(t, r.supervisor.Reconfigure([]sources.Spec{{Name: "up", Table: r.table, Source: idle{}}}))
			require.NoError(t, r.supervisor.Reconfigure([]sources.Spec{{Name: "up", Table: r.table, Source: r.source}}))
			require.Equal(t, []string{called}, slices.Collect(maps.Keys(<-claimed)), "it is known by the server's name")
			require.Equal(t, "istio", r.names())
		})
	}
}

func TestUnknownFields_Kept(t *testing.T) {
	_, r := fromIstiod(t, wrapped(t, "shop/a", "a.example.com", func(m *mcpv1alpha1.Resource) {
		m.Body.Value = protowire.AppendString(protowire.AppendTag(m.Body.Value, 4711, protowire.BytesType), "of the future")
	}))
	require.Contains(t, string(r.table.Snapshot().Get(key("a")).Body()), "of the future")
}

func TestRevision_SelectsResources(t *testing.T) {
	labelled := func(rev string) func(*mcpv1alpha1.Resource) {
		return func(m *mcpv1alpha1.Resource) { m.Metadata.Labels = map[string]string{resource.RevisionLabel: rev} }
	}
	f := newFakeIstiod()
	f.set(entriesV1, wrapped(t, "shop/a", "a.example.com"), wrapped(t, "shop/b", "b.example.com", labelled("blue")),
		wrapped(t, "shop/g", "g.example.com", labelled("green")))
	reader := read(t, Settings{SubscribedResources: onlyEntries, Revision: "blue"}, scripted(t, f.serve))
	reader.awaitNames(t, "a b")
	f.set(entriesV1, wrapped(t, "shop/a", "a.example.com"), wrapped(t, "shop/b", "b.example.com", labelled("green")),
		wrapped(t, "shop/g", "g.example.com", labelled("blue")))
	reader.awaitNames(t, "a g")
}

func TestOldIstiod_ReadWithItsAPIVersion(t *testing.T) {
	fakeIstiod := newFakeIstiod()
	fakeIstiod.set(entriesAlpha, wrapped(t, "shop/a", "a.example.com"))
	reader := read(t, Settings{}, scripted(t, fakeIstiod.serve))
	await(t, "it is synced", reader.table.Synced)
	require.Equal(t, "a", reader.names(), "synced means that all versions were answered")
	fakeIstiod.set(entriesV1, wrapped(t, "shop/a", "a.example.com")) // istiod is upgraded
	fakeIstiod.set(entriesAlpha)
	await(t, "it comes from the other", func() bool {
		a := reader.table.Snapshot().Get(key("a"))
		return a != nil && strings.HasPrefix(a.Origin().Place, entriesV1+" ")
	})
}

// Names that are none of Kubernetes' are served with a warning, as istiod does: those of Nacos' and slime's MCP servers, and of the
// VirtualServices that istiod makes of Ingresses.
func TestForeignNames_ServedWithWarning(t *testing.T) {
	names := []string{
		"*-foo-istio-autogenerated-k8s-ingress", "-lead", "com.acme.Cart:g1:1.0.0", "orders.DEFAULT-GROUP.public", "plain", "under_score",
	}
	var sent []*anypb.Any
	for _, name := range names {
		sent = append(sent, wrapped(t, "shop/"+name, "a.example.com"))
	}
	_, r := fromIstiod(t, sent...)
	require.Equal(t, strings.Join(names, " "), r.names())
	require.Empty(t, r.status().Quarantined)
	require.Len(t, r.status().Warnings, len(names)-1)
}
