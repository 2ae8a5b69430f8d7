package engine

import (
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// The servers that are given bytes and those that are given messages must serve the same.
func TestItem_BytesEncodeItsMessage(t *testing.T) {
	item := NewItem(123456, 7)
	var packed anypb.Any
	if err := proto.Unmarshal(item.Any, &packed); err != nil {
		t.Fatal(err)
	}
	var got cluster.Cluster
	if err := packed.UnmarshalTo(&got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&got, item.Message()) {
		t.Errorf("the bytes are of %v, the message is %v", &got, item.Message())
	}
	if len(packed.GetValue()) != BodySize {
		t.Errorf("encoded size %d, want %d", len(packed.GetValue()), BodySize)
	}
	if got.GetName() != Name(123456) || !strings.Contains(got.GetAltStatName(), Marker(7)) {
		t.Errorf("name %q and marker are not in %v", Name(123456), &got)
	}
	if item.Version == NewItem(123456, 8).Version {
		t.Error("a change keeps the version")
	}
}

func TestPages(t *testing.T) {
	var p pages
	want := make([]string, 3*pageLen+5)
	check := func() {
		t.Helper()
		if got := string(p.buffers().Materialize()); got != strings.Join(want, "") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for i := range want {
		want[i] = Name(i)
		p.set(i, []byte(want[i]))
	}
	check()
	before := p.buffers()
	text := string(before.Materialize())
	want[pageLen] = "changed"
	p.set(pageLen, []byte("changed"))
	check()
	if string(before.Materialize()) != text {
		t.Error("buffers that were handed out have changed")
	}
	if got := string(p.get(pageLen + 1)); got != want[pageLen+1] {
		t.Errorf("element %q, want %q", got, want[pageLen+1])
	}
}
