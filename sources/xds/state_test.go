package xds

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"tributary/adsc"
	"tributary/internal/testutil"
	"tributary/internal/xdstest"
	"tributary/resource"
	"tributary/sources"
)

func newState(revision string) *typeState {
	schema, _ := resource.SchemaOf(resource.ServiceEntry)
	return newTypeState(entriesV1, schema, revision)
}

// TestTypeState_FollowsServer has a server go through a random history, on streams that break, and compares the published
// resources with the server's.
func TestTypeState_FollowsServer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		state := newState("")
		server, published := map[string]string{}, map[string]string{} // name to host
		for _, old := range rapid.SliceOfDistinct(rapid.IntRange(0, 5), rapid.ID).Draw(rt, "of an earlier run") {
			name := fmt.Sprintf("shop/s%d", old)
			state.hashes[name], published[name] = 0, "old.example.com"
		}
		apply := func(r *adsc.Response) {
			contents, _ := state.apply(r)
			for _, c := range contents {
				_, name := splitGroup(c.Group)
				delete(published, name)
				for _, res := range c.Resources {
					published[name] = hostOf(t, res)
				}
			}
		}
		change := func() (names []string) {
			for range rapid.IntRange(0, 4).Draw(rt, "changes") {
				name := fmt.Sprintf("shop/s%d", rapid.IntRange(0, 5).Draw(rt, "name"))
				names = append(names, name)
				if rapid.Bool().Draw(rt, "delete") {
					delete(server, name)
				} else {
					server[name] = fmt.Sprintf("h%d.example.com", rapid.IntRange(0, 2).Draw(rt, "host"))
				}
			}
			slices.Sort(names)
			return slices.Compact(names)
		}
		resources := func(names []string) (rs []adsc.Resource) {
			for _, name := range names {
				rs = append(rs, adsc.Resource{Name: name, Version: "1", Body: wrapped(t, name, server[name])})
			}
			return rs
		}
		complete := func(delta bool) {
			names := slices.Sorted(maps.Keys(server))
			if delta {
				for cut := rapid.IntRange(0, len(names)).Draw(rt, "cut"); cut > 0; cut = 0 {
					apply(&adsc.Response{TypeURL: entriesV1, Resources: resources(names[:cut]), Delta: true, Complete: true, More: true})
					if rapid.Bool().Draw(rt, "breaks") {
						state.fullSet = nil // as when a stream begins
						change()
						names = slices.Sorted(maps.Keys(server))
					} else {
						names = names[cut:]
					}
				}
			}
			rs := resources(names)
			if !delta {
				for i := range rs {
					rs[i].Name, rs[i].Version = "", ""
				}
			}
			apply(&adsc.Response{TypeURL: entriesV1, Resources: rs, Delta: delta, Complete: true})
		}
		change()
		complete(rapid.Bool().Draw(rt, "delta"))
		require.Equal(rt, server, published)
		for range rapid.IntRange(0, 5).Draw(rt, "steps") {
			names := change()
			if rapid.Bool().Draw(rt, "as changes") {
				response := &adsc.Response{TypeURL: entriesV1, Delta: true}
				for _, name := range names {
					if _, exists := server[name]; exists {
						response.Resources = append(response.Resources, resources([]string{name})...)
					} else {
						response.Removed = append(response.Removed, name)
					}
				}
				apply(response)
			} else {
				complete(rapid.Bool().Draw(rt, "delta"))
			}
			require.Equal(rt, server, published)
		}
	})
}

func hostOf(t require.TestingT, r *resource.Resource) string {
	spec, err := r.Spec()
	require.NoError(t, err)
	return spec.(interface{ GetHosts() []string }).GetHosts()[0]
}

func TestUnchangedResource_NotPublished(t *testing.T) {
	state := newState("")
	response := &adsc.Response{TypeURL: entriesV1, Complete: true, Resources: []adsc.Resource{
		{Body: wrapped(t, "shop/a", "a.example.com")}, {Body: wrapped(t, "shop/b", "b.example.com")},
	}}
	contents, _ := state.apply(response)
	require.Len(t, contents, 2)
	refused := &resource.Error{Origin: resource.Origin{Place: contents[1].Group}, Err: errors.New("refused")}
	state.noteRefusals(fmt.Errorf("wrapped: %w", errors.Join(refused)))
	contents, faults := state.apply(response)
	require.Empty(t, contents)
	require.Len(t, faults.first, 1)
	require.ErrorIs(t, faults.err(), refused, "it is still to be rejected")
}

// TestFaults_Bounded has responses of much that is wrong in few bytes.
func TestFaults_Bounded(t *testing.T) {
	const n = 100_000
	bare, _ := resource.SchemaOf(resource.MeshConfig)
	for name, c := range map[string]struct {
		state    *typeState
		complete bool
	}{
		"nameless in a set":      {newState(""), true},
		"nameless in a change":   {newState(""), false},
		"one and the same again": {newTypeState(bare.TypeURL(), bare, ""), true},
	} {
		t.Run(name, func(t *testing.T) {
			many := &adsc.Response{TypeURL: c.state.typeURL, Complete: c.complete, Resources: make([]adsc.Resource, n)}
			var contents []sources.Content
			var last faults
			allocs := testing.AllocsPerRun(1, func() { contents, last = c.state.apply(many) })
			require.Less(t, int(allocs), 2000)
			require.LessOrEqual(t, len(last.first), maxFaults)
			require.Error(t, last.err())
			require.LessOrEqual(t, len(contents), 1)
			for _, content := range contents {
				require.LessOrEqual(t, len(content.Rejects), maxFaults)
			}
			require.Len(t, c.state.complaints, 1)
		})
	}
	state := newState("")
	_, result := state.apply(&adsc.Response{TypeURL: entriesV1, Complete: true, Resources: make([]adsc.Resource, n)})
	require.ErrorContains(t, result.err(), "and 99980 more")
	require.Contains(t, state.complaints[unnamed], "100000 resources cannot be read")
}

// TestSets_Bounded counts the resources of one response and of several.
func TestSets_Bounded(t *testing.T) {
	state := newState("")
	part := &adsc.Response{TypeURL: entriesV1, Complete: true, More: true, Resources: make([]adsc.Resource, maxResources/2)}
	for range 2 {
		require.NoError(t, state.checkSize(part))
		state.apply(part)
	}
	require.NoError(t, state.checkSize(&adsc.Response{TypeURL: entriesV1, Complete: true}))
	single := &adsc.Response{TypeURL: entriesV1, Complete: true, Resources: make([]adsc.Resource, 1)}
	err := state.checkSize(single)
	require.ErrorContains(t, err, "the answer of 500001 resources is refused")
	require.True(t, adsc.Exhausted(&adsc.RefusedError{Err: err}), "the server is left alone for a while")
	require.Equal(t, 5*time.Second, adsc.DefaultExhaustedWait)
	require.NoError(t, newState("").checkSize(single))
	require.Error(t, newState("").checkSize(&adsc.Response{TypeURL: entriesV1, Removed: make([]string, maxResources+1)}))
}

// TestContents_NameEachGroupOnce has responses that say several things of one name.
func TestContents_NameEachGroupOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		state := newState("")
		names := rapid.SampledFrom([]string{"shop/a", "shop/b", "", unnamed, unnamedChange})
		for range rapid.IntRange(1, 4).Draw(rt, "responses") {
			r := &adsc.Response{TypeURL: entriesV1, Delta: true, Complete: rapid.Bool().Draw(rt, "complete"), More: rapid.Bool().Draw(rt, "more")}
			for _, name := range rapid.SliceOfN(names, 0, 4).Draw(rt, "sent") {
				r.Resources = append(r.Resources, adsc.Resource{Name: name, Version: "1", Body: wrapped(t, name, "a.example.com")})
			}
			r.Removed = rapid.SliceOfN(names, 0, 4).Draw(rt, "removed")
			contents, _ := state.apply(r)
			seen := map[string]bool{}
			for _, c := range contents {
				require.False(rt, seen[c.Group], c.Group)
				seen[c.Group] = true
			}
			for _, res := range r.Resources {
				if name := nameIn(state.schema, res); name != "" {
					require.Contains(rt, state.hashes, name, "a sent resource is not removed")
				}
			}
		}
	})
}

// FuzzTake checks that each resource leads to a content or a fault.
func FuzzTake(f *testing.F) {
	good := wrapped(f, "shop/a", "a.example.com")
	f.Add("", good.GetTypeUrl(), good.GetValue(), true)
	f.Add("shop/a", good.GetTypeUrl(), good.GetValue()[:20], false)
	f.Add("", "", []byte("\x0a\xff"), true)
	f.Add("/a", good.GetTypeUrl(), []byte("\x0a\x04\x0a\x02/a"), true)
	f.Fuzz(func(t *testing.T, name, typeURL string, value []byte, complete bool) {
		state := newState("")
		response := &adsc.Response{
			TypeURL: entriesV1, Complete: complete,
			Resources: []adsc.Resource{{Name: name, Body: &anypb.Any{TypeUrl: typeURL, Value: value}}},
		}
		contents, faults := state.apply(response)
		if len(contents) == 0 && faults.err() == nil {
			t.Fatal("the resource led to no content and no fault")
		}
		for _, c := range contents {
			if !strings.HasPrefix(c.Group, entriesV1+" ") || len(c.Resources)+len(c.Rejects) != 1 {
				t.Fatalf("strange content: %+v", c)
			}
		}
	})
}

func TestSettings(t *testing.T) {
	for name, c := range map[string]struct {
		address  string
		settings Settings
		want     string
	}{
		"scheme":  {"fs://a:1", Settings{}, `address: "fs://a:1": want xds://host:port`},
		"no port": {"xds://a", Settings{}, `address: "xds://a": want host:port, got "a"`},
		"no host": {"xds://:1", Settings{}, `address: "xds://:1": want host:port, got ":1"`},
		"port":    {"xds://a:0", Settings{}, `address: "xds://a:0": want a port from 1 to 65535, got "0"`},
		"path": {
			"xds://a:1/b",
			Settings{},
			`address: "xds://a:1/b": want xds://host:port, or several with commas between them`,
		},
		"twice": {"xds://a:1,a:1", Settings{}, `address: "xds://a:1,a:1": a:1 is named twice`},
		"mode":  {"xds://a:1", Settings{Mode: "both"}, `mode: want "auto", "delta" or "sotw", got "both"`},
		"kind": {
			"xds://a:1",
			Settings{SubscribedResources: []string{"Pod"}},
			`subscribedResources: "Pod": want a kind such as ServiceEntry`,
		},
		"kind twice": {
			"xds://a:1",
			Settings{SubscribedResources: []string{"se", "SERVICE_REGISTRY"}},
			`subscribedResources: "SERVICE_REGISTRY": ServiceEntry is named twice`,
		},
		"ISTIO_MUTUAL": {
			"xds://a:1",
			Settings{TLS: &TLS{Mode: "ISTIO_MUTUAL"}},
			"tlsSettings.mode: ISTIO_MUTUAL takes certificates from an Istio agent",
		},
		"token in the open": {"xds://a:1", Settings{TokenFile: "t"}, "tokenFile: a token must not be sent in plaintext"},
		"locality":          {"xds://a:1", Settings{Locality: "a/b/c/d"}, "locality: want region/zone/subzone"},
		"resync":            {"xds://a:1", Settings{Resync: 25 * time.Hour}, "resync: want 1s to 24h, got 25h0m0s"},
		"size":              {"xds://a:1", Settings{MaxMessageBytes: -1}, "maxMessageBytes: want more than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.address, c.settings)
			require.ErrorContains(t, err, c.want)
		})
	}
	source, err := New("xds://[::1]:1,b:2", Settings{SubscribedResources: []string{
		"SERVICE_REGISTRY", "gateways",
		"networking.istio.io/v1alpha3/VirtualService",
	}})
	require.NoError(t, err)
	require.Equal(t, []string{"[::1]:1", "b:2"}, source.config.Addresses)
	require.Len(t, source.kinds, 3)
	require.Equal(t, []string{"networking.istio.io/v1alpha3/VirtualService"}, source.kinds[2].typeURLs)
}

func TestNode_IdentifiesSource(t *testing.T) {
	s, err := New("xds://a:1", Settings{
		Revision: "blue", Locality: "r/z", NodeMetadata: map[string]string{"NAMESPACES": "a,b"},
	})
	require.NoError(t, err)
	node := s.node("")
	require.Regexp(t, `^sidecar~127\.0\.0\.1~tributary[a-z0-9-]*\.default~default\.svc\.cluster\.local$`, node.GetId())
	require.Equal(t, map[string]any{
		"GENERATOR": "api", "ISTIO_REVISION": "blue", "NAMESPACES": "a,b",
	}, node.GetMetadata().AsMap())
	require.Equal(t, "r", node.GetLocality().GetRegion())
	require.Equal(t, "z", node.GetLocality().GetZone())
	require.Regexp(t, `^sidecar~127\.0\.0\.1~tributary[a-z0-9-]*\.mesh~mesh\.svc\.cluster\.local$`, s.node("mesh").GetId())
	named, err := New("xds://a:1", Settings{NodeID: "given"})
	require.NoError(t, err)
	require.Equal(t, "given", named.node("mesh").GetId())
}

// TestNode_HasNamespaceOfToken has an istiod of today, which compares the namespaces of the node and of the identity.
func TestNode_HasNamespaceOfToken(t *testing.T) {
	certs := testutil.NewAuthority(t)
	server := xdstest.ListenSotW(t, grpc.Creds(loopback(certs, false)))
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:mesh:x"}`))
	settings := Settings{
		Mode: "sotw", SubscribedResources: onlyEntries, TLS: &TLS{Mode: "SIMPLE", CACertificates: certs.PEM},
		TokenFile: testutil.WriteFile(t, t.TempDir(), "token", "e30."+claims+".c2ln"),
	}
	r := read(t, settings, server.Address)
	stream := server.Next()
	require.Regexp(t, `\.mesh~mesh\.svc\.cluster\.local$`, stream.Receive().GetNode().GetId())
	stream.Send(&discoveryv3.DiscoveryResponse{TypeUrl: entriesV1, Resources: sent(t, "a")})
	r.awaitNames(t, "a")
	require.Contains(t, r.source.Standing().Node.GetId(), ".mesh~")

	settings.NodeID = "sidecar~127.0.0.1~x.default~default.svc.cluster.local"
	r = read(t, settings, server.Address)
	stream = server.Next()
	require.Equal(t, settings.NodeID, stream.Receive().GetNode().GetId())
	stream.End(status.Error(codes.PermissionDenied,
		"authorization failed: no identities ([spiffe://td/ns/mesh/sa/x]) matched default/"))
	r.awaitState(t, sources.Denied, "leave out nodeID, or give it the namespace of the identity")
}
