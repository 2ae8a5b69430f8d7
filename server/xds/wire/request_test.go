package wire

import (
	"bytes"
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
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

func FuzzRequest(f *testing.F) {
	node := &corev3.Node{Id: "n", Cluster: "c"}
	for _, message := range []proto.Message{
		&discoveryv3.DiscoveryRequest{
			VersionInfo: "v", Node: node, ResourceNames: []string{"a", "b"}, TypeUrl: "t", ResponseNonce: "n",
			ErrorDetail: &status.Status{Message: "bad"},
		},
		&discoveryv3.DeltaDiscoveryRequest{
			Node: node, TypeUrl: "t", ResourceNamesSubscribe: []string{"a"}, ResourceNamesUnsubscribe: []string{"b", "c"},
			InitialResourceVersions: map[string]string{"a": "1", "": "2"}, ResponseNonce: "n", ErrorDetail: &status.Status{Message: "bad"},
		},
	} {
		b, err := proto.Marshal(message)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := (&Request{}).Decode(b); errors.Is(err, errGroup) {
			return
		}
		var want discoveryv3.DiscoveryRequest
		got := Request{}
		if err := got.Decode(split(b)...); proto.Unmarshal(b, &want) == nil && bounded(want.Node, want.TypeUrl, want.VersionInfo) {
			require.NoError(t, err)
			require.Equal(t, want.TypeUrl, got.TypeURL)
			require.Equal(t, want.VersionInfo, got.Version)
			require.Equal(t, shortNonce(want.ResponseNonce), got.Nonce)
			require.Equal(t, want.ResourceNames, got.Names)
		}
		var wantDelta discoveryv3.DeltaDiscoveryRequest
		gotDelta := Request{Delta: true}
		if err := gotDelta.Decode(split(b)...); proto.Unmarshal(b, &wantDelta) == nil && bounded(wantDelta.Node, wantDelta.TypeUrl, "") {
			require.NoError(t, err)
			require.Equal(t, wantDelta.TypeUrl, gotDelta.TypeURL)
			require.Equal(t, shortNonce(wantDelta.ResponseNonce), gotDelta.Nonce)
			require.Equal(t, wantDelta.ResourceNamesSubscribe, gotDelta.Subscribe)
			require.Equal(t, wantDelta.ResourceNamesUnsubscribe, gotDelta.Unsubscribe)
			versions := map[string]string{}
			if gotDelta.Initial != nil {
				for entry := range gotDelta.Initial.Entries() {
					name, version, _ := MapEntry(entry)
					versions[string(name)] = string(version)
				}
			}
			require.True(t, maps.Equal(wantDelta.InitialResourceVersions, versions))
			require.Equal(t, shorten([]byte(wantDelta.ErrorDetail.GetMessage())), gotDelta.Err.GetMessage())
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
func TestRequestInSmallParts_CopiedOnce(t *testing.T) {
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
	request := &Request{Delta: true}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, request.Unmarshal(data))
	runtime.ReadMemStats(&after)
	require.Equal(t, len(m.InitialResourceVersions), request.VersionCount)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(len(b)*3/2))
	clear(b)
	for entry := range request.Initial.Entries() {
		_, version, err := MapEntry(entry)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(version), "it is ours")
		break
	}
}

// A request with too many names is decoded a second time, without most of them. It still has the reservation of its memory.
func TestReducedRequest_HoldsItsMemory(t *testing.T) {
	m := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", InitialResourceVersions: map[string]string{"there": "1"}}
	for i := range 100 {
		m.ResourceNamesSubscribe = append(m.ResourceNamesSubscribe, fmt.Sprint("no-", i))
	}
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	request := &Request{Delta: true, MaxCost: 10}
	require.NoError(t, request.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}))
	require.True(t, request.TooMany())
	released := false
	request.OnRelease(func() { released = true })
	require.NoError(t, request.DecodeFiltered(func([]byte) bool { return false }))
	require.NotNil(t, request.Initial)
	require.NotNil(t, request.Release)
	request.Release()
	require.True(t, released)
}

func TestDecode_StopsAtTooManyNames(t *testing.T) {
	long := strings.Repeat("n", 1000) // counts as eight
	for _, message := range []proto.Message{
		&discoveryv3.DiscoveryRequest{ResourceNames: []string{"a", "b", long}},
		&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a", "b"}, ResourceNamesUnsubscribe: []string{long}},
		&discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{
			"a": "1", "b": "1", "c": "1", "d": "1", "e": "1", "f": "1", "g": "1", "h": "1", "i": "1", "j": "1",
		}},
	} {
		b, err := proto.Marshal(message)
		require.NoError(t, err)
		_, sotw := message.(*discoveryv3.DiscoveryRequest)
		request := Request{Delta: !sotw, MaxCost: 9}
		require.NoError(t, request.Decode(b))
		require.True(t, request.TooMany())
		require.LessOrEqual(t, len(request.Names)+len(request.Subscribe)+len(request.Unsubscribe), 3)
		require.Nil(t, request.Initial)
		request.MaxCost = 10
		require.NoError(t, request.Decode(b))
		require.False(t, request.TooMany())
		require.Len(t, append(append(request.Names, request.Subscribe...), request.Unsubscribe...), 3*request.Cost/10)
	}
}

// A field in many parts is joined once, and groups are refused.
func TestLongField_InManyParts(t *testing.T) {
	text := protowire.AppendTag(nil, 6, protowire.BytesType)
	text = protowire.AppendString(text, strings.Repeat("n", 4<<20))
	var parts [][]byte
	for part := range bytes.Lines(bytes.ReplaceAll(text, []byte(strings.Repeat("n", 100)), []byte(strings.Repeat("n", 99)+"\n"))) {
		parts = append(parts, part)
	}
	request := Request{Delta: true}
	allocated := testing.AllocsPerRun(1, func() { require.NoError(t, request.Decode(parts...)) })
	require.Less(t, allocated, 50.0)
	require.Equal(t, strings.Repeat("n", maxNonce), request.Nonce)

	group := append([]byte{15<<3 | 3}, 15<<3|4)
	require.ErrorIs(t, request.Decode(group), errGroup)
	require.ErrorContains(t, request.Decode(text[:100]), "unexpected EOF")
}

// An unknown field is skipped without being joined, and the fields after it are read.
func TestUnknownLongField_Skipped(t *testing.T) {
	text := protowire.AppendVarint(protowire.AppendTag(nil, 15, protowire.BytesType), 4<<20)
	text = append(text, make([]byte, 4<<20)...)
	text = protowire.AppendString(protowire.AppendTag(text, 6, protowire.BytesType), "n")
	for _, size := range []int{1, 2, 3, 1000, 16 << 10} {
		var parts [][]byte
		for begin := 0; begin < len(text); {
			n := min(size, len(text)-begin)
			if begin > 100 { // the beginning and the end in small parts
				n = min(16<<10, max(len(text)-begin-100, 1))
			}
			parts = append(parts, text[begin:begin+n])
			begin += n
		}
		request := Request{Delta: true}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, request.Decode(parts...))
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
		require.Equal(t, "n", request.Nonce)
		require.ErrorContains(t, request.Decode(parts[:len(parts)-110]...), "unexpected EOF")
	}
}
