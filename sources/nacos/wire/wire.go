// Package wire is the gRPC protocol of Nacos 2 and 3: one message, and two methods with it.
package wire

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/internal/protofields"
)

// The methods: requests with an answer, and the stream of the server's requests.
const (
	Request       = "/Request/request"
	RequestStream = "/BiRequestStream/requestBiStream"
)

// Payload is the message, as of nacos_grpc_service.proto (2.0 to 3.1). The body is JSON of the type Kind.
//
//	message Metadata { string type = 3; string clientIp = 8; map<string, string> headers = 7; }
//	message Payload  { Metadata metadata = 2; google.protobuf.Any body = 3; }
type Payload struct {
	Kind     string
	ClientIP string
	Headers  map[string]string
	Body     []byte
}

// The numbers of fields.
const (
	payloadMetadata  = 2
	payloadBody      = 3
	metadataType     = 3
	metadataHeaders  = 7
	metadataClientIP = 8
	entryKey         = 1
	entryValue       = 2
	anyValue         = 2
)

func (p *Payload) marshal() []byte {
	var metadata []byte
	field := func(to []byte, number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), value)
	}
	metadata = field(metadata, metadataType, []byte(p.Kind))
	for key, value := range p.Headers {
		metadata = field(metadata, metadataHeaders, field(field(nil, entryKey, []byte(key)), entryValue, []byte(value)))
	}
	metadata = field(metadata, metadataClientIP, []byte(p.ClientIP))
	return field(field(nil, payloadMetadata, metadata), payloadBody, field(nil, anyValue, p.Body))
}

func (p *Payload) unmarshal(content []byte) error {
	message, err := protofields.Parse(content)
	if err != nil {
		return err
	}
	metadata, err := protofields.Parse(message.Bytes(payloadMetadata))
	if err != nil {
		return err
	}
	body, err := protofields.Parse(message.Bytes(payloadBody))
	if err != nil {
		return err
	}
	*p = Payload{Kind: metadata.Text(metadataType), ClientIP: metadata.Text(metadataClientIP), Body: body.Bytes(anyValue)}
	if len(metadata[metadataHeaders]) > 0 {
		p.Headers, err = metadata.Map(metadataHeaders)
	}
	return err
}

// Codec is a gRPC codec for payloads.
type Codec struct{}

// Name implements encoding.CodecV2. The server sees the default codec.
func (Codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	payload, ok := v.(*Payload)
	if !ok {
		return nil, fmt.Errorf("a %T is no Payload", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(payload.marshal())}, nil
}

// Unmarshal implements encoding.CodecV2.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	payload, ok := v.(*Payload)
	if !ok {
		return errors.New("that is no Payload")
	}
	return payload.unmarshal(data.Materialize())
}
