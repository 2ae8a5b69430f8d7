package mcp

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/internal/hops"
	"tributary/server/xds"
)

// Hops knows through which instances of tributary what this one serves has come, and tells that those who read from it, so
// that one that is among them does not: in a loop of instances nothing that is deleted would ever go away. Nothing is
// taken from clients. It is safe for concurrent use.
type Hops struct {
	self string
	coll *xds.Collection // of one entry: the list

	mu    sync.Mutex
	above map[any][]string // by source
}

// NewHops returns the hops of an instance, which must have a name of its own.
func NewHops(instance string) *Hops {
	h := &Hops{self: hops.ID(instance), coll: xds.NewCollection(xds.Type{URL: hops.TypeURL}, xds.Debounce{}), above: make(map[any][]string)}
	h.publish()
	h.coll.MarkSynced()
	return h
}

// Self returns what identifies this instance to others.
func (h *Hops) Self() string { return h.self }

// Reads says through which instances what a source has comes. None are for one that reads nothing.
func (h *Hops) Reads(source any, instances []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Equal(h.above[source], instances) {
		return
	}
	if len(instances) == 0 {
		delete(h.above, source)
	} else {
		h.above[source] = slices.Clone(instances)
	}
	h.publish()
}

// list returns all instances, this one first. The caller holds mu.
func (h *Hops) list() string {
	set := make(map[string]bool)
	for _, instances := range h.above {
		for _, id := range instances {
			set[id] = true
		}
	}
	delete(set, h.self)
	return hops.Format(append([]string{h.self}, slices.Sorted(maps.Keys(set))...))
}

// publish publishes the list to the clients that ask. The caller holds mu, or is the only one there is.
func (h *Hops) publish() {
	text := h.list()
	// An Any of a google.protobuf.StringValue.
	value := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), text)
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "type.googleapis.com/google.protobuf.StringValue")
	b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), value)
	h.coll.Apply(xds.Commit{Put: []*xds.Entry{{Name: "instances", Version: hops.ID(text), Any: b}}})
}

// Intercept is a grpc.StreamServerInterceptor that has the first response of each xDS stream say what the list is.
func (h *Hops) Intercept(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if strings.HasPrefix(info.FullMethod, "/envoy.service.") {
		ss = &announcingStream{ServerStream: ss, hops: h}
	}
	return handler(srv, ss)
}

// announcingStream is a stream whose first message brings the list along.
type announcingStream struct {
	grpc.ServerStream
	hops *Hops
	once sync.Once
}

// SendMsg implements grpc.ServerStream.
func (t *announcingStream) SendMsg(m any) error {
	t.once.Do(func() {
		t.hops.mu.Lock()
		list := t.hops.list()
		t.hops.mu.Unlock()
		_ = t.SetHeader(metadata.Pairs(hops.Header, list)) // it fails only once a header was sent
	})
	return t.ServerStream.SendMsg(m)
}
