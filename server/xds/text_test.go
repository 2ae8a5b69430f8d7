package xds

import (
	"bytes"
	"fmt"
	"testing"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestTextsOfRequests puts bytes that are not UTF-8 in each text of a request. The request is refused, or keeps nothing of them:
// kept texts may get into the answers of CSDS and of istioctl, and into pages.
func TestTextsOfRequests(t *testing.T) {
	const mark = "QQ"
	for _, m := range []proto.Message{&discoveryv3.DiscoveryRequest{}, &discoveryv3.DeltaDiscoveryRequest{}} {
		_, delta := m.(*discoveryv3.DeltaDiscoveryRequest)
		kept, walked := 0, 0
		eachText(m.ProtoReflect(), mark, 9, func() {
			walked++
			b, err := proto.Marshal(m)
			require.NoError(t, err)
			good := &request{delta: delta}
			require.NoError(t, good.decode(b), "%v", m)
			if bytes.Contains(texts(t, good), []byte(mark)) {
				kept++
			}
			bad := &request{delta: delta}
			if bad.decode(bytes.ReplaceAll(b, []byte(mark), []byte("\xff\xfe"))) == nil && checkTypeURL(bad.typeURL) == nil {
				require.True(t, utf8.Valid(texts(t, bad)), "%v", m)
			}
		})
		require.Greater(t, kept, 15, "of %d", walked)
	}
}

// eachText calls f with each text that m may have set to text, one at a time, in messages nested up to a depth.
func eachText(m protoreflect.Message, text string, depth int, f func()) {
	set := func(fd protoreflect.FieldDescriptor, v protoreflect.Value, put func(protoreflect.Value)) {
		switch {
		case fd.Kind() == protoreflect.StringKind:
			put(protoreflect.ValueOfString(text))
			f()
		case fd.Message() != nil && depth > 0:
			put(v)
			eachText(v.Message(), text, depth-1, f)
		}
	}
	for i := range m.Descriptor().Fields().Len() {
		switch fd := m.Descriptor().Fields().Get(i); {
		case fd.IsMap():
			all := m.Mutable(fd).Map()
			all.Set(protoreflect.ValueOfString(text).MapKey(), all.NewValue())
			f()
			m.Clear(fd)
			all = m.Mutable(fd).Map()
			set(fd.MapValue(), all.NewValue(), func(v protoreflect.Value) { all.Set(protoreflect.ValueOfString("k").MapKey(), v) })
			m.Clear(fd)
		case fd.IsList():
			all := m.Mutable(fd).List()
			set(fd, all.NewElement(), func(v protoreflect.Value) { all.Append(v) })
			m.Clear(fd)
		default:
			set(fd, m.NewField(fd), func(v protoreflect.Value) { m.Set(fd, v) })
			m.Clear(fd)
		}
	}
}

// texts returns all texts that a request keeps.
func texts(t *testing.T, r *request) []byte {
	t.Helper()
	_, err := proto.Marshal(r.node)
	require.NoError(t, err, "the node is sent by CSDS")
	all := fmt.Appendf(nil, "%s %s %s %s %s %s %s %v", r.typeURL, r.version, r.nonce, r.names,
		r.subscribe, r.unsub, r.err.GetMessage(), r.node)
	if r.initial != nil {
		for entry := range r.initial.all() {
			name, version, _ := mapEntry(entry)
			all = fmt.Appendf(all, " %s %s", name, version)
		}
	}
	return all
}

// What a node is called is printed.
func TestNodesArePrintable(t *testing.T) {
	const evil, escaped = "a\u202e\x1b[31m", `a\u202e\x1b[31m`
	b, err := proto.Marshal(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: evil, Cluster: evil, UserAgentName: evil}})
	require.NoError(t, err)
	r := &request{}
	require.NoError(t, r.decode(b))
	require.Equal(t, []string{escaped, escaped, escaped}, []string{r.node.GetId(), r.node.GetCluster(), r.node.GetUserAgentName()})
}

// A type URL is printed everywhere: one that is not printable UTF-8 ends the stream, and is not seen in the status of clients.
func TestTypeURLsAreTexts(t *testing.T) {
	for _, delta := range []bool{false, true} {
		for _, url := range []string{"a.b/v1/K\u202eEVIL", "a.b/v1/\x1b[31mK", "a.b/v1/K\n"} {
			w := newWorld(t, Options{})
			c := w.dial(delta, "")
			c.ask(url)
			err := c.ended()
			require.Equal(t, codes.InvalidArgument, status.Code(err))
			require.ErrorContains(t, err, fmt.Sprintf("type_url %q is not printable UTF-8", url))
		}
	}
	require.EqualError(t, checkTypeURL("a.b/v1/K\xff\xfe"),
		`rpc error: code = InvalidArgument desc = type_url "a.b/v1/K\xff\xfe" is not printable UTF-8`)
	require.NoError(t, checkTypeURL("a.b/v1/Ké"))
}
