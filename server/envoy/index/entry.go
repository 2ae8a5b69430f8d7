package index

import (
	"bytes"
	"cmp"
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Field numbers of the messages that are read without decoding all of them.
const (
	entryEndpoints  protowire.Number = 6 // of ServiceEntry
	workloadAddress protowire.Number = 1 // of WorkloadEntry
)

var (
	errTruncated = errors.New("truncated field")
	errNotText   = errors.New("an address is not UTF-8")
)

// listed is an endpoint that a ServiceEntry lists: an address, and a WorkloadEntry with the rest. Successive endpoints that differ by
// address only have the same WorkloadEntry, which is not modified.
type listed struct {
	address string
	rest    *networking.WorkloadEntry
}

// decodeEntry decodes a ServiceEntry, which may be nil, with its endpoints apart: they are most of it, and are mostly alike.
func decodeEntry(r *resource.Resource) (*networking.ServiceEntry, []listed, error) {
	if r == nil {
		return nil, nil, nil
	}
	var endpoints []listed
	var last []byte
	others := make([]byte, 0, 256) // enough for most
	for b := r.Body(); len(b) > 0; {
		field, number, value, err := nextField(b)
		if err != nil {
			return nil, nil, err
		}
		b = b[len(field):]
		if number != entryEndpoints || value == nil {
			others = append(others, field...)
			continue
		}
		var e listed
		address, rest := splitAddress(value)
		if endpoints == nil { // as many as there are if all are as long as this one
			endpoints = make([]listed, 0, 1+len(b)/len(field))
		}
		if len(endpoints) > 0 && bytes.Equal(rest, last) {
			e.rest = endpoints[len(endpoints)-1].rest
		} else {
			last, e.rest = rest, new(networking.WorkloadEntry)
			if err := proto.Unmarshal(rest, e.rest); err != nil {
				return nil, nil, err
			}
		}
		if !utf8.Valid(address) {
			return nil, nil, errNotText
		}
		e.address = cmp.Or(e.rest.GetAddress(), string(address))
		endpoints = append(endpoints, e)
	}
	spec := new(networking.ServiceEntry)
	if err := proto.Unmarshal(others, spec); err != nil {
		return nil, nil, err
	}
	return spec, endpoints, nil
}

// splitAddress returns the address of an encoded WorkloadEntry that begins with it, and the other fields.
func splitAddress(b []byte) (address, rest []byte) {
	if field, number, value, err := nextField(b); err == nil && number == workloadAddress && value != nil {
		return value, b[len(field):]
	}
	return nil, b
}

// nextField returns the first field of an encoded message, its number, and its value if that has a length.
func nextField(b []byte) (field []byte, number protowire.Number, value []byte, err error) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return nil, 0, nil, errTruncated
	}
	m := protowire.ConsumeFieldValue(number, kind, b[n:])
	if m < 0 {
		return nil, 0, nil, errTruncated
	}
	if kind == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(b[n:])
	}
	return b[:n+m], number, value, nil
}
