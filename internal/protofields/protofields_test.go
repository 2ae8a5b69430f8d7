package protofields

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestParse(t *testing.T) {
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "key")
	entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), "value")
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), "first")
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), "last")
	b = protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), entry)
	fields, err := Parse(b)
	require.NoError(t, err)
	require.Equal(t, int32(7), fields.Int32(1))
	require.Equal(t, "last", fields.Text(2))
	m, err := fields.Map(3)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"key": "value"}, m)
	require.Nil(t, fields.Bytes(4))

	_, err = Parse(b[:len(b)-1])
	require.ErrorContains(t, err, "protobuf: ")
	_, err = Parse(bytes.Repeat([]byte{1 << 3, 0}, maxFields+1))
	require.ErrorContains(t, err, "more than 65536 fields")
}
