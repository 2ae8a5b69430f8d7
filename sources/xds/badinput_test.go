package xds

import (
	"fmt"
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
	"tributary/internal/xdstest"
	"tributary/resource"
	"tributary/sources"
)

func (r *reader) names() string {
	var names []string
	for res := range r.table.Snapshot().All() {
		names = append(names, res.Key().Name)
	}
	return strings.Join(names, " ")
}

// get returns the ServiceEntry of a name, or nil.
func (r *reader) get(name string) *resource.Resource { return r.table.Snapshot().Get(key(name)) }

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
	server := xdstest.ListenSotW(t)
	r := read(t, Settings{Mode: "sotw"}, server.Address)
	r.awaitState(t, sources.Starting,
		server.Address+" has not answered yet for security.istio.io/v1/AuthorizationPolicy, ")
	r.awaitState(t, sources.Starting, "and 10 more")
	require.False(t, r.status().Synced)
}

func TestServer_SilentForOneType(t *testing.T) {
	f := newIstiod(t)
	f.Silent = true
	r := read(t, Settings{Mode: "sotw", SubscribedResources: []string{entriesV1, "Gateway"}}, scripted(t, f.serve))
	r.awaitState(t, sources.Starting, "networking.istio.io/v1/Gateway")
	require.False(t, r.status().Synced)
}

func TestUnknownTypesAndNonces_Ignored(t *testing.T) {
	server := xdstest.ListenSotW(t)
	reader := read(t, sotwEntries, server.Address)
	stream := server.Next()
	stream.Receive()
	for _, r := range []struct{ typeURL, nonce, entry string }{
		{"unheard.of/v1/Thing", "1", "thing"},
		{"", "1", ""},
		{entriesV1, "", "a"},
		{entriesV1, "1", "b"},
		{entriesV1, "1", "c"},
	} {
		stream.Send(&discoveryv3.DiscoveryResponse{
			TypeUrl: r.typeURL, Nonce: r.nonce, Resources: sent(t, strings.Fields(r.entry)...),
		})
	}
	reader.awaitNames(t, "c")
	for _, reply := range []string{"ServiceEntry", "ServiceEntry nonce 1", "ServiceEntry nonce 1"} {
		stream.Expect(reply) // to answer for another type is to ask for it
	}
}

func TestDuplicates_LastOneCounts(t *testing.T) {
	fakeIstiod, reader := fromIstiod(t, "a=first")
	before := reader.get("a").Version()
	fakeIstiod.set("a=first", "a=second", "b")
	reader.awaitNames(t, "a b")
	require.NotEqual(t, before, reader.get("a").Version())
	require.Equal(t, "second.example.com", hostOf(t, reader.get("a")))
	require.Contains(t, <-fakeIstiod.Nacks, "ServiceEntry shop/a: sent twice in one response; the last one counts")
	reader.awaitState(t, sources.Degraded, "shop/a: sent twice")
	fakeIstiod.set("a=first", "b")
	reader.awaitState(t, sources.Healthy, "")
}

// TestClaimedVersion_OfLastDuplicate has a server resume a reader that was sent something twice.
func TestClaimedVersion_OfLastDuplicate(t *testing.T) {
	server := xdstest.ListenDelta(t)
	r := read(t, deltaEntries, server.Address)
	twice := sentDelta(t, "a=one", "a=two")
	twice.Resources[1].Version = "2"
	stream := server.Next()
	stream.Receive()
	stream.Exchange(twice)
	stream.End(status.Error(codes.Unavailable, "restart"))
	require.Equal(t, map[string]string{"shop/a": "2"}, server.Next().Receive().GetInitialResourceVersions())
	require.Equal(t, "two.example.com", hostOf(t, r.get("a")))
}

func TestResourcesOverLimit_Refused(t *testing.T) {
	fakeIstiod, reader := fromIstiod(t, "a")
	many := make([]*anypb.Any, maxResources+1)
	for i := range many {
		many[i] = &anypb.Any{}
	}
	fakeIstiod.Set(entriesV1, many...)
	reader.awaitState(t, sources.Unreachable, "the answer of 500001 resources is refused: it has more than 500000")
	require.Equal(t, "a", reader.names())
}

func TestResponseOverLimit_Refused(t *testing.T) {
	fakeIstiod := newIstiod(t, "a")
	reader := read(t, Settings{Mode: "sotw", SubscribedResources: onlyEntries, MaxMessageBytes: 1 << 20},
		scripted(t, fakeIstiod.serve, grpc.MaxSendMsgSize(1<<30)))
	reader.awaitNames(t, "a")
	fakeIstiod.Set(entriesV1, &anypb.Any{TypeUrl: resource.MCPTypeURL, Value: make([]byte, 200<<20)})
	reader.awaitState(t, sources.Unreachable, "received message larger than max (2097")
	require.Equal(t, "a", reader.names())
}

func TestTruncatedResource_KeepsLastGood(t *testing.T) {
	fakeIstiod, reader := fromIstiod(t, "a", "b", "gone")
	fakeIstiod.Set(entriesV1, append(sent(t, "b=changed"), truncated(t, "a"))...)
	reader.awaitNames(t, "a b")
	await(t, "a is quarantined", func() bool { return len(reader.status().Quarantined) == 1 })
	q := reader.status().Quarantined[0]
	require.Equal(t, key("a"), q.Key())
	require.True(t, q.LastGoodServes)
	require.Contains(t, <-fakeIstiod.Nacks, "ServiceEntry shop/a: ServiceEntry: decode: ")
	fakeIstiod.Set(entriesV1, append(sent(t, "b=again"), truncated(t, "a"))...)
	require.Contains(t, <-fakeIstiod.Nacks, "ServiceEntry shop/a: ", "it is rejected as long as it is sent")
	require.Len(t, reader.status().Quarantined, 1)
	fakeIstiod.set("b=again")
	reader.awaitNames(t, "b")
	await(t, "the quarantine ends", func() bool { return len(reader.status().Quarantined) == 0 })
}

// TestUnnamedResource_BlocksDeletions sends resources too broken for a name, and messages of another type.
func TestUnnamedResource_BlocksDeletions(t *testing.T) {
	for name, broken := range map[string]*anypb.Any{
		"noise":                    {TypeUrl: resource.MCPTypeURL, Value: []byte("\xff\xff\xff")},
		"empty":                    {},
		"a message of another API": xdstest.Packed(t, durationpb.New(5)),
		"the body as it is":        xdstest.Packed(t, specOf(t, entry(t, "a", "a.example.com"))),
	} {
		t.Run(name, func(t *testing.T) {
			fakeIstiod, r := fromIstiod(t, "a", "b")
			fakeIstiod.Set(entriesV1, append(sent(t, "c"), broken)...)
			r.awaitNames(t, "a b c") // any of them may be the broken one
			r.awaitState(t, sources.Degraded, "1 resources cannot be read and have no name: until that ends, no resource of the type is deleted")
			require.Contains(t, <-fakeIstiod.Nacks, entriesV1+" (unnamed): ServiceEntry: ")
			require.Len(t, r.status().Quarantined, 1)
			fakeIstiod.set("c")
			r.awaitNames(t, "c")
			r.awaitState(t, sources.Healthy, "")
			require.Empty(t, r.status().Quarantined)
		})
	}
}

func TestMalformedNames_Rejected(t *testing.T) {
	fakeIstiod, r := fromIstiod(t, "a")
	fakeIstiod.Set(entriesV1, append(sent(t, "too/many/slashes=s", "shop/=s", "/from-a-file=f", "b"),
		wrapped(t, "slashless", "s.example.com"))...)
	r.awaitNames(t, "from-a-file b")
	require.NotNil(t, r.table.Snapshot().Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: "from-a-file"}))
	reason := <-fakeIstiod.Nacks
	for _, name := range []string{`"slashless"`, `"too/many/slashes"`, `"shop/"`} {
		require.Contains(t, reason, name)
	}
	require.Len(t, r.status().Quarantined, 3)
}

func TestInvalidResource_KeepsLastGood(t *testing.T) {
	f, reader := fromIstiod(t, "a", "b")
	good := reader.get("a").Version()
	f.Set(entriesV1, append(sent(t, "b=changed"), wrapped(t, "shop/a", "not a host"))...)
	require.Contains(t, <-f.Nacks, "ServiceEntry shop/a: ")
	require.Equal(t, good, reader.get("a").Version())
	require.Len(t, reader.status().Quarantined, 1)
	require.NotContains(t, reader.status().Quarantined[0].Reason, "shop/b")
}

func TestAlternatingSets_HoldLoss(t *testing.T) {
	many := make([]string, 30)
	for i := range many {
		many[i] = fmt.Sprintf("s%02d", i)
	}
	fakeIstiod, reader := fromIstiod(t, many...)
	full := strings.Join(many, " ")
	require.Equal(t, full, reader.names())
	for range 5 {
		fakeIstiod.set()
		await(t, "the loss is held", func() bool { return reader.status().Held != nil })
		require.Equal(t, full, reader.names())
		fakeIstiod.set(many...)
		await(t, "the hold ends", func() bool { return reader.status().Held == nil })
		require.Equal(t, full, reader.names())
	}
}

func TestRevokedToken_Denied(t *testing.T) {
	certs, directory := testutil.NewAuthority(t), t.TempDir()
	token := testutil.WriteFile(t, directory, "token", "good")
	fakeIstiod := newIstiod(t, "a")
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
	fakeIstiod.EndStreams()
	reader.awaitState(t, sources.Denied, "the token is revoked")
	require.Equal(t, "a", reader.names())
	testutil.WriteFile(t, directory, "token", "better")
	reader.awaitState(t, sources.Healthy, "")
}

func TestExpiredCertificate_Unreachable(t *testing.T) {
	certs := testutil.NewAuthority(t)
	address := scripted(t, newIstiod(t, "a").serve, grpc.Creds(loopback(certs, true)))
	r := read(t, Settings{SubscribedResources: onlyEntries, TLS: &TLS{Mode: "SIMPLE", CACertificates: certs.PEM}}, address)
	r.awaitState(t, sources.Unreachable, "certificate has expired")
}

func TestObjects_WithoutCreationTime(t *testing.T) {
	fakeIstiod, reader := fromIstiod(t, "a")
	a := reader.get("a")
	require.Equal(t, entry(t, "a", "a.example.com").Version(), a.Version(), "of the content")
	require.Zero(t, a.Created())
	publishes := reader.status().Publishes
	fakeIstiod.set("a")
	fakeIstiod.set("a", "b")
	reader.awaitNames(t, "a b")
	require.Equal(t, publishes+1, reader.status().Publishes, "an equal resource is not published again")
}

const meshConfig = "core/v1alpha1/MeshConfig"

func TestMeshConfig_SubscribedByDefault(t *testing.T) {
	fakeIstiod := newIstiod(t, "a")
	fakeIstiod.Set(meshConfig, xdstest.Packed(t, &meshv1alpha1.MeshConfig{RootNamespace: "istio-system"}))
	address := scripted(t, fakeIstiod.serve)
	everyKind := read(t, Settings{}, address)
	await(t, "both are there", func() bool { return everyKind.table.Snapshot().Len() == 2 })
	onlyEntryKind := read(t, Settings{SubscribedResources: []string{"ServiceEntry"}}, address)
	await(t, "it is synced", onlyEntryKind.table.Synced)
	require.Equal(t, "a", onlyEntryKind.names())
}

// TestMeshConfigName_KeptAcrossRestart has a delta server that calls the only one as it likes.
func TestMeshConfigName_KeptAcrossRestart(t *testing.T) {
	for name, called := range map[string]string{"as we do": bareName, "otherwise": "mesh"} {
		t.Run(name, func(t *testing.T) {
			server := xdstest.ListenDelta(t)
			r := read(t, Settings{Mode: "delta", SubscribedResources: []string{meshConfig}}, server.Address)
			response := &discoveryv3.DeltaDiscoveryResponse{
				TypeUrl: meshConfig, Nonce: "n", SystemVersionInfo: "v", Resources: []*discoveryv3.Resource{{
					Name: called, Version: "7", Resource: xdstest.Packed(t, &meshv1alpha1.MeshConfig{RootNamespace: "istio-system"}),
				}},
			}
			stream := server.Next()
			stream.Receive()
			stream.Exchange(response)
			r.awaitNames(t, "istio")
			r.runAgain(t, func() {})
			stream = server.Next()
			claimed := stream.Receive().GetInitialResourceVersions()
			require.Len(t, claimed, 1)
			require.Contains(t, claimed, called, "it is known by the server's name")
			stream.Exchange(response)
			require.Equal(t, "istio", r.names())
		})
	}
}

func TestUnknownFields_Kept(t *testing.T) {
	f := newIstiod(t)
	f.Set(entriesV1, wrapped(t, "shop/a", "a.example.com", func(m *mcpv1alpha1.Resource) {
		m.Body.Value = protowire.AppendString(protowire.AppendTag(m.Body.Value, 4711, protowire.BytesType), "of the future")
	}))
	r := read(t, sotwEntries, scripted(t, f.serve))
	r.awaitNames(t, "a")
	require.Contains(t, string(r.get("a").Body()), "of the future")
}

func TestRevision_SelectsResources(t *testing.T) {
	f := newIstiod(t)
	serve := func(revisions map[string]string) {
		var entries []*anypb.Any
		for name, revision := range revisions {
			entries = append(entries, wrapped(t, "shop/"+name, name+".example.com", func(m *mcpv1alpha1.Resource) {
				if revision != "" {
					m.Metadata.Labels = map[string]string{resource.RevisionLabel: revision}
				}
			}))
		}
		f.Set(entriesV1, entries...)
	}
	serve(map[string]string{"a": "", "b": "blue", "g": "green"})
	reader := read(t, Settings{SubscribedResources: onlyEntries, Revision: "blue"}, scripted(t, f.serve))
	reader.awaitNames(t, "a b")
	serve(map[string]string{"a": "", "b": "green", "g": "blue"})
	reader.awaitNames(t, "a g")
}

func TestOldIstiod_ReadWithItsAPIVersion(t *testing.T) {
	fakeIstiod := newIstiod(t)
	fakeIstiod.Set(entriesAlpha, sent(t, "a")...)
	reader := read(t, Settings{}, scripted(t, fakeIstiod.serve))
	await(t, "it is synced", reader.table.Synced)
	require.Equal(t, "a", reader.names(), "synced means that all versions were answered")
	fakeIstiod.set("a") // istiod is upgraded
	fakeIstiod.Set(entriesAlpha)
	await(t, "it comes from the other", func() bool {
		a := reader.get("a")
		return a != nil && strings.HasPrefix(a.Origin().Place, entriesV1+" ")
	})
}

// Names that are none of Kubernetes' are served with a warning, as istiod does: those of Nacos' and slime's MCP servers, and of the
// VirtualServices that istiod makes of Ingresses.
func TestForeignNames_ServedWithWarning(t *testing.T) {
	names := []string{
		"*-foo-istio-autogenerated-k8s-ingress", "-lead", "com.acme.Cart:g1:1.0.0", "orders.DEFAULT-GROUP.public", "plain", "under_score",
	}
	var items []string
	for _, name := range names {
		items = append(items, name+"=a")
	}
	_, r := fromIstiod(t, items...)
	require.Equal(t, strings.Join(names, " "), r.names())
	require.Empty(t, r.status().Quarantined)
	require.Len(t, r.status().Warnings, len(names)-1)
}
