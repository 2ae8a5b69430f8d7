package xds

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// request is a DiscoveryRequest or DeltaDiscoveryRequest. One value is reused for all requests of a stream: clients such
// as istiod repeat a node of several kilobytes on every acknowledgement, which is skipped once a node is known.
type request struct {
	delta bool // which of the two messages to expect; set by the owner

	size      int          // encoded
	node      *corev3.Node // of the first request that has one
	typeURL   string
	version   string
	nonce     string
	names     []string // SotW: resource_names
	subscribe []string // delta
	unsub     []string
	initial   *versions      // initial_resource_versions
	err       *status.Status // error_detail: a NACK

	interned map[string]string // type URLs seen, so that an acknowledgement allocates nothing for them
}

// The meaning of fields, by number, in each of the two messages.
type field int

const (
	fieldVersion field = iota + 1
	fieldNode
	fieldNames
	fieldTypeURL
	fieldNonce
	fieldError
	fieldSubscribe
	fieldUnsubscribe
	fieldInitial
)

var (
	sotwFields  = [...]field{1: fieldVersion, 2: fieldNode, 3: fieldNames, 4: fieldTypeURL, 5: fieldNonce, 6: fieldError}
	deltaFields = [...]field{1: fieldNode, 2: fieldTypeURL, 3: fieldSubscribe, 4: fieldUnsubscribe, deltaInitial: fieldInitial, 6: fieldNonce, 7: fieldError}
)

// decode replaces all of r but the node and what belongs to the owner. If b has initial_resource_versions, r.initial refers to
// it.
func (r *request) decode(b []byte) error {
	*r = request{delta: r.delta, size: len(b), node: r.node, interned: r.interned}
	fields := sotwFields[:]
	if r.delta {
		fields = deltaFields[:]
	}
	all, initial := b, false
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("decode discovery request: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if typ != protowire.BytesType || int(num) >= len(fields) || fields[num] == 0 {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return fmt.Errorf("decode discovery request: field %d: %w", num, protowire.ParseError(n))
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return fmt.Errorf("decode discovery request: field %d: %w", num, protowire.ParseError(n))
		}
		b = b[n:]
		if fields[num] == fieldInitial {
			if _, _, err := mapEntry(v); err != nil {
				return fmt.Errorf("decode discovery request: field %d: %w", num, err)
			}
			initial = true
			continue
		}
		if err := r.set(fields[num], v); err != nil {
			return fmt.Errorf("decode discovery request: field %d: %w", num, err)
		}
	}
	if initial {
		r.initial = &versions{request: all}
	}
	return nil
}

func (r *request) set(f field, v []byte) error {
	switch f {
	case fieldVersion:
		r.version = string(v)
	case fieldNode:
		if r.node != nil {
			return nil
		}
		r.node = &corev3.Node{}
		return proto.Unmarshal(v, r.node)
	case fieldNames:
		r.names = append(r.names, string(v))
	case fieldTypeURL:
		r.typeURL = r.intern(v)
	case fieldNonce:
		r.nonce = string(v)
	case fieldError:
		r.err = &status.Status{}
		return proto.Unmarshal(v, r.err)
	case fieldSubscribe:
		r.subscribe = append(r.subscribe, string(v))
	case fieldUnsubscribe:
		r.unsub = append(r.unsub, string(v))
	}
	return nil
}

func (r *request) intern(v []byte) string {
	if s, ok := r.interned[string(v)]; ok {
		return s
	}
	if r.interned == nil {
		r.interned = make(map[string]string)
	}
	s := string(v)
	if len(r.interned) < 64 { // a client that makes up types gains nothing
		r.interned[s] = s
	}
	return s
}

// mapEntry decodes an entry of a map<string, string>.
func mapEntry(b []byte) (key, value []byte, err error) {
	const first, second = 1<<3 | byte(protowire.BytesType), 2<<3 | byte(protowire.BytesType)
	if len(b) >= 2 && b[0] == first && b[1] < 0x80 { // nearly all are as short as this
		if v := 2 + int(b[1]); len(b) >= v+2 && b[v] == second && b[v+1] < 0x80 && len(b) == v+2+int(b[v+1]) {
			return b[2:v], b[v+2:], nil
		}
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		b = b[n:]
		if typ != protowire.BytesType || num > 2 {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return nil, nil, protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		b = b[n:]
		if num == 1 {
			key = v
		} else {
			value = v
		}
	}
	return key, value, nil
}
