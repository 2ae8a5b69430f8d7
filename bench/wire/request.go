package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// The two gRPC methods of the aggregated discovery service.
const (
	MethodSotW  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	MethodDelta = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
)

// Field numbers of discovery.v3.DeltaDiscoveryRequest that a server of raw bytes has to know.
const (
	DeltaSubscribe       protowire.Number = 3
	DeltaInitialVersions protowire.Number = 5
)

// Subscription is the subscription of a stream to one type.
type Subscription struct {
	Delta   bool
	Node    []byte // encoded core.v3.Node; a delta stream has it in its first request only
	TypeURL string
	Names   []string // none is a wildcard
	// Versions are the versions that a delta client already holds, by name.
	Versions map[string]string
}

// First returns the first request of the type on a stream, as bytes.
func (s Subscription) First() []byte {
	var b []byte
	if !s.Delta {
		b = appendBytes(b, 2, s.Node)
		for _, name := range s.Names {
			b = appendString(b, 3, name)
		}
		return appendString(b, 4, s.TypeURL)
	}
	if len(s.Node) > 0 {
		b = appendBytes(b, 1, s.Node)
	}
	b = appendString(b, 2, s.TypeURL)
	for _, name := range s.Names {
		b = appendString(b, DeltaSubscribe, name)
	}
	for name, version := range s.Versions {
		var entry []byte
		entry = appendString(entry, 1, name)
		entry = appendString(entry, 2, version)
		b = appendBytes(b, DeltaInitialVersions, entry)
	}
	return b
}

// ACK returns the request that accepts r. It is a new slice each time: gRPC holds a message until it is written.
func (s Subscription) ACK(r *Response) []byte {
	b := make([]byte, 0, 16+len(s.TypeURL)+len(r.Version)+len(r.Nonce))
	if s.Delta {
		b = appendString(b, 2, s.TypeURL)
		return appendString(b, 6, r.Nonce)
	}
	b = appendString(b, 1, r.Version)
	for _, name := range s.Names {
		b = appendString(b, 3, name)
	}
	b = appendString(b, 4, s.TypeURL)
	return appendString(b, 5, r.Nonce)
}

// Node returns an encoded core.v3.Node with an id and, if given, metadata of strings.
func Node(id string, metadata map[string]string) []byte {
	b := appendString(nil, 1, id)
	b = appendString(b, 2, "bench")
	if len(metadata) == 0 {
		return b
	}
	var fields []byte // google.protobuf.Struct
	for key, value := range metadata {
		entry := appendString(nil, 1, key)
		entry = appendBytes(entry, 2, appendString(nil, 3, value))
		fields = appendBytes(fields, 1, entry)
	}
	return appendBytes(b, 3, fields)
}

func appendString(b []byte, n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}
