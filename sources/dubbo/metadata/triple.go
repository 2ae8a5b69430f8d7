package metadata

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/internal/intake"
	"tributary/internal/protofields"
	"tributary/sources/dubbo/provider"
)

// raw is a codec without conversion: the five small messages are encoded and decoded by hand.
type raw struct{}

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (raw) Name() string { return "proto" }

// call makes a gRPC call, which Triple understands, and passes the answer to read.
func call(ctx context.Context, address, method string, message []byte, read func(answer []byte) error) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		intake.DialOption(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	codec := intake.NewCodec(ctx, raw{}, maxAnswer, func(message []byte) int { return decodedFactor * len(message) })
	defer func() { codec.Lease().Release() }()
	var answer []byte
	if err := conn.Invoke(ctx, method, &message, &answer, grpc.ForceCodecV2(codec)); err != nil {
		return err
	}
	return read(answer)
}

// decodedFactor is how many times the memory of its bytes a decoded answer takes.
const decodedFactor = 8

// overTriple calls MetadataServiceV2/GetMetadataInfo: MetadataRequest{revision=1} gives MetadataInfoV2.
func overTriple(ctx context.Context, address string, i provider.Instance) (metadata provider.Metadata, err error) {
	message := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), i.Revision)
	err = call(ctx, address, "/"+service+"V2/GetMetadataInfo", message, func(answer []byte) (err error) {
		metadata, err = parseInfo(answer)
		return err
	})
	return metadata, err
}

// overWrappedTriple calls getExportedURLs as Java's Triple does for services without protobuf:
// TripleRequestWrapper{serializeType=1, args=2, argTypes=3} gives TripleResponseWrapper{serializeType=1, data=2,
// type=3}, with the answer in hessian2.
func overWrappedTriple(
	ctx context.Context, address string, i provider.Instance,
) (metadata provider.Metadata, err error) {
	ctx = grpcmetadata.AppendToOutgoingContext(ctx, "tri-service-group", i.Application, "tri-service-version", "1.0.0")
	message := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "hessian2")
	err = call(ctx, address, "/"+service+"/getExportedURLs", message, func(answer []byte) error {
		fields, err := protofields.Parse(answer)
		if err != nil {
			return err
		}
		reader := &reader{rest: fields.Bytes(2)}
		urls := reader.value(0)
		if reader.err != nil {
			return reader.err
		}
		metadata, err = ofURLs(i, urls)
		return err
	})
	return metadata, err
}

// parseInfo reads MetadataInfoV2{app=1, version=2, map<string, ServiceInfoV2> services=3}.
func parseInfo(message []byte) (metadata provider.Metadata, err error) {
	fields, err := protofields.Parse(message)
	if err != nil {
		return metadata, err
	}
	metadata.Application, metadata.Revision = fields.Text(1), fields.Text(2)
	for _, entry := range fields[3] {
		entryFields, err := protofields.Parse(entry)
		if err != nil {
			return metadata, err
		}
		service, err := parseService(entryFields.Bytes(2))
		if err != nil {
			return metadata, err
		}
		metadata.Services = append(metadata.Services, service)
	}
	if metadata.Application == "" && len(metadata.Services) == 0 {
		return metadata, provider.ErrNoMetadata
	}
	return metadata, nil
}

// parseService reads ServiceInfoV2{name=1, group=2, version=3, protocol=4, int32 port=5, path=6, map<string, string>
// params=7}.
func parseService(message []byte) (service provider.Service, err error) {
	fields, err := protofields.Parse(message)
	if err != nil {
		return service, err
	}
	service = provider.Service{
		Name: fields.Text(1), Group: fields.Text(2), Version: fields.Text(3), Protocol: fields.Text(4),
		Port: int(fields.Int32(5)), Path: fields.Text(6),
	}
	service.Params, err = fields.Map(7)
	return service, err
}
