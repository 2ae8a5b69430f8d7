package metadata

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/sources/dubbo/provider"
)

// raw is a codec without conversion: the five small messages are encoded and decoded by hand.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = slices.Clone(b)
	return nil
}

func (raw) Name() string { return "proto" }

// call makes a gRPC call, which Triple understands.
func call(ctx context.Context, address, method string, message []byte) (answer []byte, err error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	err = conn.Invoke(ctx, method, &message, &answer)
	return answer, err
}

// overTriple calls MetadataServiceV2/GetMetadataInfo: MetadataRequest{revision=1} gives MetadataInfoV2.
func overTriple(ctx context.Context, address string, i provider.Instance) (m provider.Metadata, err error) {
	message := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), i.Revision)
	answer, err := call(ctx, address, "/"+service+"V2/GetMetadataInfo", message)
	if err != nil {
		return m, err
	}
	return parseInfo(answer)
}

// overWrappedTriple calls getExportedURLs as Java's Triple does for services without protobuf: TripleRequestWrapper{serializeType=1,
// args=2, argTypes=3} gives TripleResponseWrapper{serializeType=1, data=2, type=3}, with the answer in hessian2.
func overWrappedTriple(ctx context.Context, address string, i provider.Instance) (m provider.Metadata, err error) {
	ctx = grpcmetadata.AppendToOutgoingContext(ctx, "tri-service-group", i.Application, "tri-service-version", "1.0.0")
	message := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "hessian2")
	answer, err := call(ctx, address, "/"+service+"/getExportedURLs", message)
	if err != nil {
		return m, err
	}
	var data string
	if err := fields(answer, texts(map[protowire.Number]*string{2: &data})); err != nil {
		return m, err
	}
	r := &reader{rest: []byte(data)}
	urls := r.value(0)
	if r.err != nil {
		return m, r.err
	}
	return ofURLs(i, urls)
}

// fields calls f for each field of a message, with its bytes or its number.
func fields(message []byte, f func(n protowire.Number, b []byte, v uint64) error) error {
	for len(message) > 0 {
		n, t, size := protowire.ConsumeTag(message)
		if size < 0 {
			return fmt.Errorf("protobuf: %w", protowire.ParseError(size))
		}
		message = message[size:]
		var b []byte
		var v uint64
		switch t {
		case protowire.BytesType:
			b, size = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			v, size = protowire.ConsumeVarint(message)
		default:
			size = protowire.ConsumeFieldValue(n, t, message)
		}
		if size < 0 {
			return fmt.Errorf("protobuf: %w", protowire.ParseError(size))
		}
		message = message[size:]
		if err := f(n, b, v); err != nil {
			return err
		}
	}
	return nil
}

// texts returns a function for fields that stores texts by their numbers.
func texts(of map[protowire.Number]*string) func(protowire.Number, []byte, uint64) error {
	return func(n protowire.Number, b []byte, _ uint64) error {
		if to := of[n]; to != nil {
			*to = string(b)
		}
		return nil
	}
}

// parseInfo reads MetadataInfoV2{app=1, version=2, map<string, ServiceInfoV2> services=3}.
func parseInfo(message []byte) (m provider.Metadata, err error) {
	text := texts(map[protowire.Number]*string{1: &m.Application, 2: &m.Revision})
	err = fields(message, func(n protowire.Number, b []byte, _ uint64) error {
		if n != 3 {
			return text(n, b, 0)
		}
		var value string
		if err := fields(b, texts(map[protowire.Number]*string{2: &value})); err != nil {
			return err
		}
		s, err := parseService([]byte(value))
		m.Services = append(m.Services, s)
		return err
	})
	if err == nil && m.Application == "" && len(m.Services) == 0 {
		err = provider.ErrNoMetadata
	}
	return m, err
}

// parseService reads ServiceInfoV2{name=1, group=2, version=3, protocol=4, int32 port=5, path=6, map<string, string> params=7}.
func parseService(message []byte) (s provider.Service, err error) {
	s.Params = map[string]string{}
	text := texts(map[protowire.Number]*string{1: &s.Name, 2: &s.Group, 3: &s.Version, 4: &s.Protocol, 6: &s.Path})
	err = fields(message, func(n protowire.Number, b []byte, v uint64) error {
		switch n {
		case 5:
			s.Port = int(int32(v)) //nolint:gosec // it is one of 32 bits
		case 7:
			var key, value string
			err := fields(b, texts(map[protowire.Number]*string{1: &key, 2: &value}))
			s.Params[key] = value
			return err
		}
		return text(n, b, v)
	})
	return s, err
}
