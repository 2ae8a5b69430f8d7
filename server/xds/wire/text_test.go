package wire

import (
	"bytes"
	"fmt"
	"testing"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestTextsOfRequests puts bytes that are not UTF-8 in each text of a request. The request is refused, or keeps no such
// bytes: kept texts may get into the answers of CSDS and of istioctl, and into pages.
func TestTextsOfRequests(t *testing.T) {
	const mark = "QQ"
	for _, message := range []proto.Message{&discoveryv3.DiscoveryRequest{}, &discoveryv3.DeltaDiscoveryRequest{}} {
		_, delta := message.(*discoveryv3.DeltaDiscoveryRequest)
		keptTexts, walked := 0, 0
		eachText(message.ProtoReflect(), mark, 9, func() {
			walked++
			b, err := proto.Marshal(message)
			require.NoError(t, err)
			good := &Request{Delta: delta}
			require.NoError(t, good.Decode(b), "%v", message)
			if bytes.Contains(texts(t, good), []byte(mark)) {
				keptTexts++
			}
			bad := &Request{Delta: delta}
			if bad.Decode(bytes.ReplaceAll(b, []byte(mark), []byte("\xff\xfe"))) == nil && CheckTypeURL(bad.TypeURL) == nil {
				require.True(t, utf8.Valid(texts(t, bad)), "%v", message)
			}
		})
		require.Greater(t, keptTexts, 15, "of %d", walked)
	}
}

// eachText calls f with each text that m may have set to text, one at a time, in messages nested up to a depth.
func eachText(message protoreflect.Message, text string, depth int, f func()) {
	set := func(fd protoreflect.FieldDescriptor, value protoreflect.Value, put func(protoreflect.Value)) {
		switch {
		case fd.Kind() == protoreflect.StringKind:
			put(protoreflect.ValueOfString(text))
			f()
		case fd.Message() != nil && depth > 0:
			put(value)
			eachText(value.Message(), text, depth-1, f)
		}
	}
	for i := range message.Descriptor().Fields().Len() {
		switch fd := message.Descriptor().Fields().Get(i); {
		case fd.IsMap():
			entries := message.Mutable(fd).Map()
			entries.Set(protoreflect.ValueOfString(text).MapKey(), entries.NewValue())
			f()
			message.Clear(fd)
			entries = message.Mutable(fd).Map()
			set(fd.MapValue(), entries.NewValue(), func(v protoreflect.Value) { entries.Set(protoreflect.ValueOfString("k").MapKey(), v) })
			message.Clear(fd)
		case fd.IsList():
			elements := message.Mutable(fd).List()
			set(fd, elements.NewElement(), func(v protoreflect.Value) { elements.Append(v) })
			message.Clear(fd)
		default:
			set(fd, message.NewField(fd), func(v protoreflect.Value) { message.Set(fd, v) })
			message.Clear(fd)
		}
	}
}

// texts returns all texts that a request keeps.
func texts(t *testing.T, request *Request) []byte {
	t.Helper()
	_, err := proto.Marshal(request.Node)
	require.NoError(t, err, "the node is sent by CSDS")
	text := fmt.Appendf(nil, "%s %s %s %s %s %s %s %v", request.TypeURL, request.Version, request.Nonce, request.Names,
		request.Subscribe, request.Unsubscribe, request.Err.GetMessage(), request.Node)
	if request.Initial != nil {
		for entry := range request.Initial.Entries() {
			name, version, _ := MapEntry(entry)
			text = fmt.Appendf(text, " %s %s", name, version)
		}
	}
	return text
}

// Node IDs, clusters and user agents are escaped.
func TestNodes_Escaped(t *testing.T) {
	const evil, escaped = "a\u202e\x1b[31m", `a\u202e\x1b[31m`
	b, err := proto.Marshal(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: evil, Cluster: evil, UserAgentName: evil}})
	require.NoError(t, err)
	r := &Request{}
	require.NoError(t, r.Decode(b))
	require.Equal(t, []string{escaped, escaped, escaped}, []string{r.Node.GetId(), r.Node.GetCluster(), r.Node.GetUserAgentName()})
}

func TestTypeURL_HasToBePrintable(t *testing.T) {
	require.EqualError(t, CheckTypeURL("a.b/v1/K\xff\xfe"),
		`rpc error: code = InvalidArgument desc = type_url "a.b/v1/K\xff\xfe" is not printable UTF-8`)
	require.NoError(t, CheckTypeURL("a.b/v1/Ké"))
}
