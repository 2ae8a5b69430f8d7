package mcp

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/internal/names"
	"tributary/server/xds"
)

// Hops publishes the list of the instances of tributary that the content came through. An instance in the list ignores
// the content: in a loop of instances, deleted objects would stay for ever. Clients cannot add to the list. It is safe
// for concurrent use.
type Hops struct {
	self string
	coll *xds.Collection // of one entry: the list

	mu    sync.Mutex
	above map[any][]string // by source
}

// NewHops returns the hops of an instance. Its name must be unique.
func NewHops(instance string) *Hops {
	collection := xds.NewCollection(xds.Type{URL: names.InstancesType}, xds.Debounce{})
	h := &Hops{self: names.Instance(instance), coll: collection, above: make(map[any][]string)}
	h.publish()
	h.coll.MarkSynced()
	return h
}

// Self returns the ID of this instance.
func (h *Hops) Self() string { return h.self }

// Reads sets the instances that the content of a source came through; empty if the source is not an instance.
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

// list returns all instances, this one first; h.mu is held.
func (h *Hops) list() string {
	ids := make(map[string]bool)
	for _, instances := range h.above {
		for _, id := range instances {
			ids[id] = true
		}
	}
	delete(ids, h.self)
	return names.JoinInstances(append([]string{h.self}, slices.Sorted(maps.Keys(ids))...))
}

// publish publishes the list to the subscribed clients. h.mu is held, or h is not shared yet.
func (h *Hops) publish() {
	text := h.list()
	body, _ := anypb.New(wrapperspb.String(text)) // IDs are hexadecimal
	b, _ := proto.Marshal(body)
	h.coll.Apply(xds.Commit{Put: []*xds.Entry{{Name: "instances", Version: names.Instance(text), Any: b}}})
}

// Intercept is a grpc.StreamServerInterceptor that adds the list to the headers of each xDS stream.
func (h *Hops) Intercept(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	if strings.HasPrefix(info.FullMethod, "/envoy.service.") {
		stream = &announcingStream{ServerStream: stream, hops: h}
	}
	return handler(server, stream)
}

// announcingStream sends the list before its first message.
type announcingStream struct {
	grpc.ServerStream
	hops *Hops
	once sync.Once
}

// SendMsg implements grpc.ServerStream.
func (a *announcingStream) SendMsg(message any) error {
	a.once.Do(func() {
		a.hops.mu.Lock()
		list := a.hops.list()
		a.hops.mu.Unlock()
		_ = a.SetHeader(metadata.Pairs(names.InstancesHeader, list)) // it fails only once a header was sent
	})
	return a.ServerStream.SendMsg(message)
}
