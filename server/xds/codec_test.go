package xds

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

func FuzzRequest(f *testing.F) {
	node := &corev3.Node{Id: "n", Cluster: "c"}
	for _, m := range []proto.Message{
		&discoveryv3.DiscoveryRequest{
			VersionInfo: "v", Node: node, ResourceNames: []string{"a", "b"}, TypeUrl: "t", ResponseNonce: "n",
			ErrorDetail: &status.Status{Message: "bad"},
		},
		&discoveryv3.DeltaDiscoveryRequest{
			Node: node, TypeUrl: "t", ResourceNamesSubscribe: []string{"a"}, ResourceNamesUnsubscribe: []string{"b", "c"},
			InitialResourceVersions: map[string]string{"a": "1", "": "2"}, ResponseNonce: "n", ErrorDetail: &status.Status{Message: "bad"},
		},
	} {
		b, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := (&request{}).decode(b); errors.Is(err, errGroup) {
			return
		}
		var want discoveryv3.DiscoveryRequest
		got := request{}
		if err := got.decode(split(b)...); proto.Unmarshal(b, &want) == nil && bounded(want.Node, want.TypeUrl, want.VersionInfo) {
			require.NoError(t, err)
			require.Equal(t, want.TypeUrl, got.typeURL)
			require.Equal(t, want.VersionInfo, got.version)
			require.Equal(t, shortNonce(want.ResponseNonce), got.nonce)
			require.Equal(t, want.ResourceNames, got.names)
		}
		var wantDelta discoveryv3.DeltaDiscoveryRequest
		gotDelta := request{delta: true}
		if err := gotDelta.decode(split(b)...); proto.Unmarshal(b, &wantDelta) == nil && bounded(wantDelta.Node, wantDelta.TypeUrl, "") {
			require.NoError(t, err)
			require.Equal(t, wantDelta.TypeUrl, gotDelta.typeURL)
			require.Equal(t, shortNonce(wantDelta.ResponseNonce), gotDelta.nonce)
			require.Equal(t, wantDelta.ResourceNamesSubscribe, gotDelta.subscribe)
			require.Equal(t, wantDelta.ResourceNamesUnsubscribe, gotDelta.unsub)
			versions := map[string]string{}
			if gotDelta.initial != nil {
				for entry := range gotDelta.initial.all() {
					name, version, _ := mapEntry(entry)
					versions[string(name)] = string(version)
				}
			}
			require.True(t, maps.Equal(wantDelta.InitialResourceVersions, versions))
			require.Equal(t, shorten([]byte(wantDelta.ErrorDetail.GetMessage())), gotDelta.err.GetMessage())
		}
	})
}

// split cuts a message into parts of the size in its first byte.
func split(b []byte) [][]byte {
	if len(b) == 0 {
		return nil
	}
	return slices.Collect(slices.Chunk(b, 1+int(b[0])))
}

// bounded says whether the parts of a request that outlive it are within their limits.
func bounded(node *corev3.Node, typeURL, version string) bool {
	return proto.Size(node) <= maxNode && len(typeURL) <= maxTypeURL && len(version) <= maxVersion
}

func shortNonce(nonce string) string {
	return strings.ToValidUTF8(nonce[:min(len(nonce), maxNonce)], "")
}

// A large request in small parts is copied only once.
func TestARequestInSmallPartsIsCopiedOnce(t *testing.T) {
	m := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", InitialResourceVersions: map[string]string{}}
	for i := range 100_000 {
		m.InitialResourceVersions[fmt.Sprintf("name-of-a-resource-%d", i)] = "0123456789"
	}
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	var data mem.BufferSlice
	for part := range slices.Chunk(b, leastPart/2) {
		data = append(data, mem.SliceBuffer(part))
	}
	r := &request{delta: true}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, codec{}.Unmarshal(data, r))
	runtime.ReadMemStats(&after)
	require.Equal(t, len(m.InitialResourceVersions), r.versions)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(len(b)*3/2))
	clear(b)
	for entry := range r.initial.all() {
		_, version, err := mapEntry(entry)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(version), "it is ours")
		break
	}
}

// A request with too many names is decoded a second time, without most of them. It still has the reservation of its memory.
func TestARequestThatIsReducedHoldsItsMemory(t *testing.T) {
	m := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", InitialResourceVersions: map[string]string{"there": "1"}}
	for i := range 100 {
		m.ResourceNamesSubscribe = append(m.ResourceNamesSubscribe, fmt.Sprint("no-", i))
	}
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	r := &request{delta: true, maxCost: 10}
	require.NoError(t, codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, r))
	require.True(t, r.tooMany())
	released := false
	r.OnRelease(func() { released = true })
	require.NoError(t, r.decodeFiltered(func([]byte) bool { return false }))
	require.NotNil(t, r.initial)
	require.NotNil(t, r.release)
	r.release()
	require.True(t, released)
}
