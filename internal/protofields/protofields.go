// Package protofields parses a few fields of protobuf messages without generated code, for the clients of Nacos and of
// Dubbo's providers.
package protofields

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields are the fields of a message by number: the bytes of strings and messages, or of the encoding of a number.
type Fields map[protowire.Number][][]byte

// maxFields is the limit of fields in a message.
const maxFields = 1 << 16

// Parse reads the fields of a message. They are parts of it.
func Parse(message []byte) (Fields, error) {
	fields := Fields{}
	for count := 0; len(message) > 0; count++ {
		if count == maxFields {
			return nil, fmt.Errorf("protobuf: a message has more than %d fields", maxFields)
		}
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, fmt.Errorf("protobuf: %w", protowire.ParseError(n))
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return nil, fmt.Errorf("protobuf: %w", protowire.ParseError(n))
		}
		value := message[:n]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		fields[number], message = append(fields[number], value), message[n:]
	}
	return fields, nil
}

// Bytes returns the last value of a field; nil if there is none.
func (f Fields) Bytes(number protowire.Number) []byte {
	if fields := f[number]; len(fields) > 0 {
		return fields[len(fields)-1]
	}
	return nil
}

// Text returns the last value of a field as a text.
func (f Fields) Text(number protowire.Number) string { return string(f.Bytes(number)) }

// Int32 returns the last value of a field as a number; 0 if it is none.
func (f Fields) Int32(number protowire.Number) int32 {
	v, _ := protowire.ConsumeVarint(f.Bytes(number))
	return int32(v) //nolint:gosec // it is one of 32 bits
}

// Map returns the entries of a field that is a map of strings.
func (f Fields) Map(number protowire.Number) (map[string]string, error) {
	fields := make(map[string]string, len(f[number]))
	for _, entry := range f[number] {
		entryFields, err := Parse(entry)
		if err != nil {
			return nil, err
		}
		fields[entryFields.Text(1)] = entryFields.Text(2)
	}
	return fields, nil
}
