package translate

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// anyHead returns an encoded Any up to its value of a size, for which there is room.
func anyHead(typeURL string, size int) []byte {
	b := make([]byte, 0, size+len(typeURL)+16)
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), typeURL)
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(size)) //nolint:gosec // not negative
}

// EntryOf returns the entry of a message.
func EntryOf(m proto.Message) *xds.Entry {
	options := proto.MarshalOptions{Deterministic: true}
	b := anyHead(model.TypeURL(m), options.Size(m))
	options.UseCachedSize = true
	b, err := options.MarshalAppend(b, m)
	if err != nil {
		panic(err) // as in mustMarshal
	}
	return &xds.Entry{Name: xds.NameOf(m), Version: xds.VersionOf(b), Any: b, Child: xds.ChildOf(m)}
}

// EntryOfBytes returns the entry of a message that is encoded already.
func EntryOfBytes(name, typeURL string, body []byte) *xds.Entry {
	b := append(anyHead(typeURL, len(body)), body...)
	return &xds.Entry{Name: name, Version: xds.VersionOf(b), Any: b}
}
