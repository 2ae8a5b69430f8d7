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

// Field numbers of messages that are decoded in part.
const (
	entryEndpoints  protowire.Number = 6 // of ServiceEntry
	workloadAddress protowire.Number = 1 // of WorkloadEntry
)

var (
	errTruncated = errors.New("truncated field")
	errNotText   = errors.New("an address is not UTF-8")
)

// listedEndpoint is an endpoint in a ServiceEntry: an address, and a WorkloadEntry with the other fields. Successive
// endpoints that differ only by address share the immutable WorkloadEntry.
type listedEndpoint struct {
	address string
	spec    *networking.WorkloadEntry
}

// decodeEntry decodes a ServiceEntry, which may be nil, and its endpoints separately: most of the object are endpoints,
// and most of these are alike.
func decodeEntry(object *resource.Resource) (*networking.ServiceEntry, []listedEndpoint, error) {
	if object == nil {
		return nil, nil, nil
	}
	var endpoints []listedEndpoint
	var last []byte
	otherFields := make([]byte, 0, 256) // enough for most
	for encoded := object.Body(); len(encoded) > 0; {
		field, number, value, err := nextField(encoded)
		if err != nil {
			return nil, nil, err
		}
		encoded = encoded[len(field):]
		if number != entryEndpoints || value == nil {
			otherFields = append(otherFields, field...)
			continue
		}
		var endpoint listedEndpoint
		address, rest := splitAddress(value)
		if endpoints == nil { // the estimate assumes endpoints of equal length
			endpoints = make([]listedEndpoint, 0, 1+len(encoded)/len(field))
		}
		if len(endpoints) > 0 && bytes.Equal(rest, last) {
			endpoint.spec = endpoints[len(endpoints)-1].spec
		} else {
			last = rest
			endpoint.spec = new(networking.WorkloadEntry)
			if err := proto.Unmarshal(rest, endpoint.spec); err != nil {
				return nil, nil, err
			}
		}
		if !utf8.Valid(address) {
			return nil, nil, errNotText
		}
		endpoint.address = cmp.Or(endpoint.spec.GetAddress(), string(address))
		endpoints = append(endpoints, endpoint)
	}
	spec := new(networking.ServiceEntry)
	if err := proto.Unmarshal(otherFields, spec); err != nil {
		return nil, nil, err
	}
	return spec, endpoints, nil
}

// splitAddress splits an encoded WorkloadEntry that begins with its address into address and other fields.
func splitAddress(encoded []byte) (address, rest []byte) {
	if field, number, value, err := nextField(encoded); err == nil && number == workloadAddress && value != nil {
		return value, encoded[len(field):]
	}
	return nil, encoded
}

// nextField returns the first field of an encoded message, its number, and its value if the value has a length.
func nextField(encoded []byte) (field []byte, number protowire.Number, value []byte, err error) {
	number, kind, tagSize := protowire.ConsumeTag(encoded)
	if tagSize < 0 {
		return nil, 0, nil, errTruncated
	}
	valueSize := protowire.ConsumeFieldValue(number, kind, encoded[tagSize:])
	if valueSize < 0 {
		return nil, 0, nil, errTruncated
	}
	if kind == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(encoded[tagSize:])
	}
	return encoded[:tagSize+valueSize], number, value, nil
}
