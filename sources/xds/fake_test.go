package xds

import (
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	mcpv1alpha1 "istio.io/api/mcp/v1alpha1"

	"tributary/internal/xdstest"
)

const (
	entriesV1    = "networking.istio.io/v1/ServiceEntry"
	entriesAlpha = "networking.istio.io/v1alpha3/ServiceEntry"
)

// onlyEntries keeps tests to one kind, of one version; sotwEntries and deltaEntries, to a variant, too.
var (
	onlyEntries  = []string{entriesV1}
	sotwEntries  = Settings{Mode: "sotw", SubscribedResources: onlyEntries}
	deltaEntries = Settings{Mode: "delta", SubscribedResources: onlyEntries}
)

type stream = xdstest.SotWStream

// scripted serves state-of-the-world streams by a function until the test ends, and returns its address.
func scripted(t *testing.T, script func(stream) error, opts ...grpc.ServerOption) string {
	t.Helper()
	server := &xdstest.Server{SotW: func(_ int, s stream) error { return script(s) }}
	return server.Serve(t, opts...)
}

// istiod is a fake istiod with ServiceEntries.
type istiod struct {
	*xdstest.Content
	t testing.TB
}

func newIstiod(t testing.TB, items ...string) istiod {
	f := istiod{xdstest.NewContent(), t}
	f.set(items...)
	return f
}

// set replaces the ServiceEntries: see sent.
func (i istiod) set(items ...string) { i.Set(entriesV1, sent(i.t, items...)...) }

func (i istiod) serve(s stream) error { return i.SotW(0, s) }

// fromIstiod reads the ServiceEntries of a fake istiod.
func fromIstiod(t *testing.T, items ...string) (istiod, *reader) {
	f := newIstiod(t, items...)
	r := read(t, Settings{SubscribedResources: onlyEntries}, scripted(t, f.serve))
	await(t, "it is synced", r.table.Synced)
	return f, r
}

// sent returns ServiceEntries as istiod sends them. An item is a name, in the namespace shop if it has no slash, and
// "=LABEL" for a host LABEL.example.com that differs from the name.
func sent(t testing.TB, items ...string) (entries []*anypb.Any) {
	for _, item := range items {
		name, host, changed := strings.Cut(item, "=")
		if !changed {
			host = name
		}
		if !strings.Contains(name, "/") {
			name = "shop/" + name
		}
		entries = append(entries, wrapped(t, name, host+".example.com"))
	}
	return entries
}

// sentDelta is a delta response of items, as in sent, and removals, "-NAME" each.
func sentDelta(t testing.TB, items ...string) *discoveryv3.DeltaDiscoveryResponse {
	response := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: entriesV1, SystemVersionInfo: "v", Nonce: "n"}
	for _, item := range items {
		if name, removed := strings.CutPrefix(item, "-"); removed {
			response.RemovedResources = append(response.RemovedResources, "shop/"+name)
			continue
		}
		name, _, _ := strings.Cut(item, "=")
		response.Resources = append(response.Resources, &discoveryv3.Resource{
			Name: "shop/" + name, Version: "1", Resource: sent(t, item)[0],
		})
	}
	return response
}

// truncated is a ServiceEntry that ends in the middle.
func truncated(t testing.TB, name string) *anypb.Any {
	entry := sent(t, name+"=changed")[0]
	entry.Value = entry.Value[:len(entry.Value)-5]
	return entry
}

// wrapped is a ServiceEntry as istiod sends it that has read it from a file: without a version, and of the year 1.
func wrapped(t testing.TB, name, host string, alter ...func(*mcpv1alpha1.Resource)) *anypb.Any {
	resource := &mcpv1alpha1.Resource{
		Metadata: &mcpv1alpha1.Metadata{Name: name, CreateTime: &timestamppb.Timestamp{Seconds: -62135596800}},
		Body:     xdstest.Packed(t, specOf(t, entry(t, "any", host))),
	}
	for _, a := range alter {
		a(resource)
	}
	return xdstest.Packed(t, resource)
}

func specOf(t testing.TB, r interface{ Spec() (proto.Message, error) }) proto.Message {
	spec, err := r.Spec()
	require.NoError(t, err)
	return spec
}
