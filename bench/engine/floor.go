package engine

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/bench/wire"
)

// floor does the least that a gRPC server can do: it sends bytes that were encoded beforehand and reads requests
// without looking at them. It keeps no versions, no nonces, no acknowledgements; a client with
// initial_resource_versions is taken to lack the last change. It is not an xDS server, but no xDS server on this gRPC
// library can cost less.
type floor struct {
	mu      sync.Mutex
	index   map[string]int
	names   []string
	delta   pages    // elements of DeltaDiscoveryResponse.resources
	sotw    pages    // elements of DiscoveryResponse.resources
	changes []change // since the revision first
	first   int
	streams map[*floorStream]struct{}
}

// change is one resource that was published after the initial load.
type change struct {
	name    string
	element []byte
}

func newFloor() Engine {
	return &floor{index: make(map[string]int), streams: make(map[*floorStream]struct{})}
}

// Options are those of tributary, so that the two differ only in the engine.
func (*floor) Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(wire.Codec{}),
		grpc.ReadBufferSize(4 << 10),
	}
}

func (f *floor) Register(s *grpc.Server) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "DeltaAggregatedResources", Handler: f.serveDelta, ServerStreams: true, ClientStreams: true},
			{StreamName: "StreamAggregatedResources", Handler: f.serveSotW, ServerStreams: true, ClientStreams: true},
		},
	}, f)
}

func (f *floor) Publish(items []Item) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, item := range items {
		element := deltaElement(item)
		i, exists := f.index[item.Name]
		if !exists {
			i = len(f.names)
			f.index[item.Name] = i
			f.names = append(f.names, item.Name)
		}
		f.delta.set(i, element)
		f.sotw.set(i, appendField(nil, 2, item.Any))
		if exists {
			f.changes = append(f.changes, change{item.Name, element})
		}
	}
	f.trim()
	for s := range f.streams {
		s.ring()
	}
	return nil
}

// trim forgets the changes that every stream has; f.mu is held.
func (f *floor) trim() {
	if len(f.changes) < 1<<14 {
		return
	}
	least := f.first + len(f.changes)
	for s := range f.streams {
		least = min(least, s.revision)
	}
	f.changes = append([]change(nil), f.changes[least-f.first:]...)
	f.first = least
}

// floorStream is a client's stream.
type floorStream struct {
	grpc.ServerStream
	bell     chan struct{}
	revision int // guarded by floor.mu
	nonce    int
	tail     []byte // encoded type URL, and for SotW a version
}

func (s *floorStream) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// send sends the elements as one response.
func (s *floorStream) send(elements mem.BufferSlice) error {
	s.nonce++
	tail := appendField(bytes.Clone(s.tail), 5, strconv.AppendInt(nil, int64(s.nonce), 10))
	return s.SendMsg(&frame{append(elements, mem.SliceBuffer(tail))})
}

// open reads the first request and registers the stream. It returns the request, and a channel that is closed when the
// client has sent its last message.
func (f *floor) open(ss grpc.ServerStream) (*floorStream, []byte, <-chan struct{}, error) {
	var request wire.Bytes
	if err := ss.RecvMsg(&request); err != nil {
		return nil, nil, nil, err
	}
	s := &floorStream{ServerStream: ss, bell: make(chan struct{}, 1), tail: appendField(nil, 4, []byte(TypeURL))}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ss.RecvMsg(&ignored{}) == nil {
		}
	}()
	f.mu.Lock()
	defer f.mu.Unlock()
	s.revision = f.first + len(f.changes)
	f.streams[s] = struct{}{}
	return s, request, ended, nil
}

func (f *floor) close(s *floorStream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, s)
}

// chunk bounds a delta response: a gRPC client refuses more than 4 MiB by default.
const chunk = 3 << 20

func (f *floor) serveDelta(_ any, ss grpc.ServerStream) error {
	s, request, ended, err := f.open(ss)
	if err != nil {
		return err
	}
	defer f.close(s)
	wanted, resumed, err := parseFirst(request)
	if err != nil {
		return err
	}
	initial := f.last()
	if !resumed {
		initial = f.elements(wanted)
	}
	for first := true; first || len(initial) > 0; first = false {
		n, size := 0, 0
		for n < len(initial) && size+initial[n].Len() <= chunk {
			size += initial[n].Len()
			n++
		}
		if err := s.send(initial[:n:n]); err != nil {
			return err
		}
		initial = initial[n:]
	}
	for {
		select {
		case <-ended:
			return nil
		case <-s.bell:
		}
		if changed := f.changesSince(s, wanted); len(changed) > 0 {
			if err := s.send(changed); err != nil {
				return err
			}
		}
	}
}

func (f *floor) serveSotW(_ any, ss grpc.ServerStream) error {
	s, _, ended, err := f.open(ss)
	if err != nil {
		return err
	}
	defer f.close(s)
	s.tail = appendField(s.tail, 1, []byte("v"))
	for {
		f.mu.Lock()
		s.revision = f.first + len(f.changes)
		resources := f.sotw.buffers()
		f.mu.Unlock()
		if err := s.send(resources); err != nil {
			return err
		}
		select {
		case <-ended:
			return nil
		case <-s.bell:
		}
	}
}

// elements returns the wanted resources, or all.
func (f *floor) elements(wanted map[string]bool) mem.BufferSlice {
	f.mu.Lock()
	defer f.mu.Unlock()
	if wanted == nil {
		return f.delta.buffers()
	}
	var out mem.BufferSlice
	for name := range wanted {
		if i, ok := f.index[name]; ok {
			out = append(out, mem.SliceBuffer(f.delta.get(i)))
		}
	}
	return out
}

// last returns the last change.
func (f *floor) last() mem.BufferSlice {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.changes) == 0 {
		return nil
	}
	return mem.BufferSlice{mem.SliceBuffer(f.changes[len(f.changes)-1].element)}
}

// changesSince returns the changes that s was not sent yet, of the wanted resources or of all.
func (f *floor) changesSince(s *floorStream, wanted map[string]bool) mem.BufferSlice {
	f.mu.Lock()
	defer f.mu.Unlock()
	pending := f.changes[s.revision-f.first:]
	s.revision += len(pending)
	out := make(mem.BufferSlice, 0, len(pending)+1)
	for _, c := range pending {
		if wanted == nil || wanted[c.name] {
			out = append(out, mem.SliceBuffer(c.element))
		}
	}
	return out
}

// parseFirst returns the names that a first delta request subscribes to, nil for a wildcard, and whether the client says
// that it has resources already.
func parseFirst(b []byte) (wanted map[string]bool, resumed bool, err error) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, false, protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return nil, false, protowire.ParseError(n)
		}
		switch number {
		case wire.DeltaSubscribe:
			name, size := protowire.ConsumeString(b)
			if size < 0 {
				return nil, false, fmt.Errorf("subscribed name: %w", protowire.ParseError(size))
			}
			if wanted == nil {
				wanted = make(map[string]bool)
			}
			wanted[name] = true
		case wire.DeltaInitialVersions:
			resumed = true
		}
		b = b[n:]
	}
	return wanted, resumed, nil
}

func deltaElement(item Item) []byte {
	resource := appendField(nil, 1, []byte(item.Version))
	resource = appendField(resource, 2, item.Any)
	resource = appendField(resource, 3, []byte(item.Name))
	return appendField(nil, 2, resource)
}

func appendField(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// frame is a response that was encoded beforehand.
type frame struct{ data mem.BufferSlice }

func (f *frame) Encoded() mem.BufferSlice   { return f.data }
func (*frame) Decode(mem.BufferSlice) error { return nil }

// ignored is an unread request.
type ignored struct{}

func (*ignored) Encoded() mem.BufferSlice     { return nil }
func (*ignored) Decode(mem.BufferSlice) error { return nil }
