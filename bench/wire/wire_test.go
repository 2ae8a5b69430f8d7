package wire

import (
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// cut returns data in pieces of a size, as a transport may deliver it.
func cut(data []byte, size int) (out mem.BufferSlice) {
	for len(data) > 0 {
		n := min(size, len(data))
		out = append(out, mem.SliceBuffer(data[:n]))
		data = data[n:]
	}
	return out
}

func TestResponse(t *testing.T) {
	const marker = "change-0000000042"
	message := &discovery.DiscoveryResponse{
		VersionInfo: "v7",
		Resources:   []*anypb.Any{{TypeUrl: "a", Value: []byte(strings.Repeat("x", 300))}, {TypeUrl: "b", Value: []byte(marker)}, {}},
		Canary:      true,
		TypeUrl:     "type.googleapis.com/thing",
		Nonce:       "n3",
	}
	data, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1; size <= len(data); size++ {
		var r Response
		if err := r.Decode(cut(data, size)); err != nil {
			t.Fatal(err)
		}
		if err := r.Scan(); err != nil {
			t.Fatalf("pieces of %d: %v", size, err)
		}
		if r.Version != "v7" || r.TypeURL != message.GetTypeUrl() || r.Nonce != "n3" || r.Resources != 3 || r.Size != len(data) {
			t.Fatalf("pieces of %d: %+v", size, r)
		}
		if !r.Contains([]byte(marker)) {
			t.Errorf("pieces of %d: the marker is not found", size)
		}
		if r.Contains([]byte("change-0000000043")) {
			t.Errorf("pieces of %d: a marker is found that is not there", size)
		}
	}
}

func TestTruncatedResponse(t *testing.T) {
	data, err := proto.Marshal(&discovery.DiscoveryResponse{VersionInfo: "v7", Resources: []*anypb.Any{{TypeUrl: "a"}}, Nonce: "n"})
	if err != nil {
		t.Fatal(err)
	}
	var r Response
	if err := r.Decode(cut(data[:len(data)-1], 3)); err != nil {
		t.Fatal(err)
	}
	if r.Scan() == nil {
		t.Error("no error")
	}
}

func TestRequests(t *testing.T) {
	node := Node("n1", map[string]string{"GENERATOR": "api"})
	wantNode := &core.Node{
		Id: "n1", Cluster: "bench",
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"GENERATOR": structpb.NewStringValue("api")}},
	}
	response := &Response{Version: "v1", TypeURL: "t", Nonce: "7"}

	delta := Subscription{Delta: true, Node: node, TypeURL: "t", Names: []string{"a", "b"}, Versions: map[string]string{"a": "1", "c": "3"}}
	expect(t, delta.First(), &discovery.DeltaDiscoveryRequest{
		Node: wantNode, TypeUrl: "t", ResourceNamesSubscribe: delta.Names, InitialResourceVersions: delta.Versions,
	})
	expect(t, delta.ACK(response), &discovery.DeltaDiscoveryRequest{TypeUrl: "t", ResponseNonce: "7"})

	sotw := Subscription{Node: node, TypeURL: "t", Names: []string{"a", "b"}}
	expect(t, sotw.First(), &discovery.DiscoveryRequest{Node: wantNode, TypeUrl: "t", ResourceNames: sotw.Names})
	expect(t, sotw.ACK(response), &discovery.DiscoveryRequest{VersionInfo: "v1", ResourceNames: sotw.Names, TypeUrl: "t", ResponseNonce: "7"})
}

func expect(t *testing.T, data []byte, want proto.Message) {
	t.Helper()
	got := want.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(data, got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNames(t *testing.T) {
	data, err := proto.Marshal(&discovery.DeltaDiscoveryResponse{
		Resources:        []*discovery.Resource{{Name: "a", Version: "1", Resource: &anypb.Any{TypeUrl: "t", Value: []byte("v")}}, {Name: "b"}},
		RemovedResources: []string{"c"}, Nonce: "n",
	})
	if err != nil {
		t.Fatal(err)
	}
	for size := 1; size <= len(data); size++ {
		var r Response
		if err := r.Decode(cut(data, size)); err != nil {
			t.Fatal(err)
		}
		names, removed, err := r.Names()
		if err != nil || !slices.Equal(names, []string{"a", "b"}) || !slices.Equal(removed, []string{"c"}) {
			t.Fatalf("pieces of %d: %q, %q, %v", size, names, removed, err)
		}
	}
}
