package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"tributary/internal/words"
)

// Request is a DiscoveryRequest or DeltaDiscoveryRequest. One value is reused for all requests of a stream: clients
// such as istiod repeat a node of several kilobytes on every acknowledgement, which is skipped once a node is known.
type Request struct {
	// set by the owner
	Delta   bool   // which of the two messages to expect
	MaxCost int    // of names in one request, or of its versions; without a limit if not positive
	Host    string // of the client

	Size                int          // encoded
	Release             func()       // ends the reservation of its memory; nil if it has none
	Cost                int          // of the names: see NameCost
	VersionCount        int          // the number of initial_resource_versions
	fingerprint         Fingerprint  // of initial_resource_versions
	Node                *corev3.Node // of the first request that has one, without its extensions
	NodeCost            int          // of that node, in the request that has it: see nodeCost
	TypeURL             string
	Version             string
	Nonce               string
	Names               []string // SotW: resource_names
	Subscribe           []string // delta
	Unsubscribe         []string
	Initial             *Versions      // initial_resource_versions
	Err                 *status.Status // error_detail: a NACK
	ChangesSubscription bool           // set by the receiver

	encoded *Versions              // the encoded request, if there are too many names
	filter  func(name []byte) bool // accepts the names of resource_names_subscribe; all if nil

	interned map[string]string // received type URLs: acknowledgements allocate no memory for them
}

// The meaning of fields, by number, in each of the two messages.
type field int

const (
	fieldVersion field = iota + 1
	fieldNode
	fieldNames
	fieldTypeURL
	fieldNonce
	fieldError
	fieldSubscribe
	fieldUnsubscribe
	fieldInitial
)

var (
	sotwFields  = [...]field{1: fieldVersion, 2: fieldNode, 3: fieldNames, 4: fieldTypeURL, 5: fieldNonce, 6: fieldError}
	deltaFields = [...]field{
		1: fieldNode, 2: fieldTypeURL, 3: fieldSubscribe, 4: fieldUnsubscribe, initialField: fieldInitial, 6: fieldNonce,
		7: fieldError,
	}
)

// Clear drops the request, so that its memory is free before the next one.
func (r *Request) Clear() {
	*r = Request{Delta: r.Delta, MaxCost: r.MaxCost, Host: r.Host, Node: r.Node, interned: r.interned, filter: r.filter}
}

// RetainedSize returns the size of a request with resume versions, which the engine retains until it compares them.
func (r *Request) RetainedSize() int {
	if r.Initial == nil && r.encoded == nil {
		return 0
	}
	return r.Size
}

// OnRelease sets the function that is called when no part of the request is retained any more. An interceptor frees its
// reserved memory with it.
func (r *Request) OnRelease(release func()) { r.Release = release }

// NameCost is the number of names that a name of so many bytes counts as against the limits on names.
func NameCost(name int) int { return 1 + name/128 }

// nodeCost is the number of names that a node of so many bytes counts as against the limits on names. Decoded, it takes
// some six times its size. Honest nodes are below freeNode and cost 0.
func nodeCost(size int) int { return max(size-freeNode, 0) / 16 }

const freeNode = 16 << 10

// withoutExtensions returns an encoded node without the list of the extensions of an Envoy. The list is nearly all of
// the node, and no response depends on it.
func withoutExtensions(node []byte) []byte {
	const extensions = 9
	var rest []byte
	for remaining := node; len(remaining) > 0; {
		number, wireType, tagSize := protowire.ConsumeTag(remaining)
		size := protowire.ConsumeFieldValue(number, wireType, remaining[max(tagSize, 0):])
		if tagSize < 0 || size < 0 {
			return append(rest, remaining...) // decoding it will fail
		}
		if number != extensions {
			rest = append(rest, remaining[:tagSize+size]...)
		}
		remaining = remaining[tagSize+size:]
	}
	return rest
}

// Decode replaces all of r but the node and the fields of the owner. The message may come in parts; r.Initial refers to
// them if it has initial_resource_versions. Decoding stops when there are too many names.
func (r *Request) Decode(parts ...[]byte) error {
	r.Clear()
	for _, part := range parts {
		r.Size += len(part)
	}
	var field []byte // the beginning of a field that continues in the next part
	var missing int  // the rest of it, in bytes
	var skip int     // the rest of an unknown field, in bytes
	for _, unread := range parts {
		for len(unread) > 0 && !r.TooMany() {
			if skip > 0 {
				n := min(skip, len(unread))
				unread, skip = unread[n:], skip-n
				continue
			}
			source := unread
			if len(field) > 0 {
				n := min(missing, len(unread))
				field = append(field, unread[:n]...)
				unread = unread[n:]
				if missing -= n; missing > 0 {
					break
				}
				source = field
			} else {
				unread = nil
			}
			rest, err := r.decodeFields(source)
			if err != nil {
				return fmt.Errorf("decode discovery request: %w", err)
			}
			if field = nil; len(rest) > 0 {
				if missing = missingBytes(rest); missing > r.Size {
					return fmt.Errorf("decode discovery request: %w", io.ErrUnexpectedEOF)
				}
				if r.isUnknown(rest) {
					skip = missing
					continue
				}
				field = append(make([]byte, 0, len(rest)+missing), rest...)
			}
		}
	}
	if (len(field) > 0 || skip > 0) && !r.TooMany() {
		return fmt.Errorf("decode discovery request: %w", io.ErrUnexpectedEOF)
	}
	if r.TooMany() {
		r.Initial = nil
	}
	return nil
}

const (
	// PooledRequest is the largest size in bytes of a request that is copied into pooled memory. Larger ones carry resume
	// versions, and keep gRPC's buffers until these are compared.
	PooledRequest = 32 << 10
	// leastPart is the least average size of gRPC's buffers. A large request in smaller buffers is copied into one.
	leastPart = 4 << 10
)

// Unmarshal decodes a request. It copies small parts, and keeps gRPC's buffers of large ones until Versions.Free.
func (r *Request) Unmarshal(data mem.BufferSlice) error {
	switch size := data.Len(); {
	case size <= PooledRequest:
		pooled := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer pooled.Free()
		err := r.Decode(pooled.ReadOnlyData())
		if r.Initial != nil {
			r.Initial.parts = [][]byte{bytes.Clone(pooled.ReadOnlyData())}
		}
		if r.TooMany() {
			r.encoded = &Versions{parts: [][]byte{bytes.Clone(pooled.ReadOnlyData())}}
		}
		return err
	case size/len(data) < leastPart:
		buffer := data.Materialize()
		err := r.Decode(buffer)
		if r.TooMany() {
			r.encoded = &Versions{parts: [][]byte{buffer}}
		}
		return err
	}
	parts := make([][]byte, len(data))
	for i, b := range data {
		parts[i] = b.ReadOnlyData()
	}
	err := r.Decode(parts...)
	switch {
	case r.TooMany():
		data.Ref()
		r.encoded = &Versions{parts: parts, memory: data}
	case r.Initial != nil:
		data.Ref()
		r.Initial.memory = data
	}
	return err
}

// DecodeFiltered decodes a request with too many names again. It takes only the names of resource_names_subscribe that
// the filter accepts.
func (r *Request) DecodeFiltered(filter func(name []byte) bool) error {
	versions, release := r.encoded, r.Release
	r.filter = filter
	err := r.Decode(versions.parts...)
	r.filter, r.Release = nil, release
	if r.Initial == nil {
		versions.Free()
	} else {
		r.Initial.memory = versions.memory
	}
	return err
}

// missingBytes returns the number of missing bytes of an incomplete field, or one if its size is incomplete, too.
func missingBytes(field []byte) int {
	_, wireType, tagSize := protowire.ConsumeTag(field)
	if tagSize < 0 {
		return 1
	}
	switch wireType {
	case protowire.Fixed32Type:
		return tagSize + 4 - len(field)
	case protowire.Fixed64Type:
		return tagSize + 8 - len(field)
	case protowire.BytesType:
		if size, n := protowire.ConsumeVarint(field[tagSize:]); n > 0 {
			return int(min(size, math.MaxInt32)) + tagSize + n - len(field) //nolint:gosec // it is bounded
		}
	}
	return 1
}

// fields returns the meaning of the fields of the message, by number.
func (r *Request) fields() []field {
	if r.Delta {
		return deltaFields[:]
	}
	return sotwFields[:]
}

// isUnknown reports whether field is the beginning, with the size, of an unknown field of bytes. Decode skips it
// without a copy.
func (r *Request) isUnknown(field []byte) bool {
	number, wireType, tagSize := protowire.ConsumeTag(field)
	if tagSize < 0 || wireType != protowire.BytesType || int(number) < len(r.fields()) && r.fields()[number] != 0 {
		return false
	}
	_, size := protowire.ConsumeVarint(field[tagSize:])
	return size > 0
}

// TooMany reports whether there are more names than a client may have.
func (r *Request) TooMany() bool { return r.MaxCost > 0 && max(r.Cost, r.VersionCount) > r.MaxCost }

// errGroup refuses groups: the protocol has none, and the size of a group is not known from its beginning.
var errGroup = errors.New("a group")

// decodeFields decodes fields. It returns the last one if it is incomplete.
func (r *Request) decodeFields(unread []byte) (rest []byte, err error) {
	fields, encoding, before, ascii := r.fields(), unread, r.VersionCount, isASCII(unread)
	for len(unread) > 0 && !r.TooMany() {
		if end := shortInitial(unread); end > 0 && r.Delta && shortMapEntry(unread[2:end]) > 0 &&
			(ascii || utf8.Valid(unread[2:end])) {
			r.countInitial(unread[2:end])
			unread = unread[end:]
			continue
		}
		number, wireType, tagSize := protowire.ConsumeTag(unread)
		size := tagSize
		if tagSize >= 0 {
			if wireType == protowire.StartGroupType {
				return nil, fmt.Errorf("field %d: %w", number, errGroup)
			}
			size = protowire.ConsumeFieldValue(number, wireType, unread[tagSize:])
		}
		if size < 0 {
			if err := protowire.ParseError(size); !errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, fmt.Errorf("field %d: %w", number, err)
			}
			break
		}
		value := unread[tagSize : tagSize+size]
		unread = unread[tagSize+size:]
		if wireType != protowire.BytesType || int(number) >= len(fields) || fields[number] == 0 {
			continue
		}
		value, _ = protowire.ConsumeBytes(value)
		if err := r.set(fields[number], value); err != nil {
			return nil, fmt.Errorf("field %d: %w", number, err)
		}
	}
	if r.VersionCount > before {
		if r.Initial == nil {
			r.Initial = &Versions{}
		}
		r.Initial.parts = append(r.Initial.parts, encoding[:len(encoding)-len(unread)])
		r.Initial.Fingerprint = r.fingerprint
	}
	return unread, nil
}

// isASCII reports whether all bytes are ASCII. That is cheaper than a check for UTF-8 of each of thousands of entries.
func isASCII(text []byte) bool {
	const high = 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		if binary.LittleEndian.Uint64(text)&high != 0 {
			return false
		}
	}
	return !slices.ContainsFunc(text, func(c byte) bool { return c >= utf8.RuneSelf })
}

// Limits of the parts of a request, other than names, that outlive it. The nodes of Envoys have some 30 kB.
const (
	maxNode    = 256 << 10
	maxTypeURL = 512
	maxVersion = 1 << 10 // longer ones are ignored
	maxNonce   = 32      // longer ones are cut
)

// errUTF8 refuses a string field that is not UTF-8.
var errUTF8 = errors.New("a text that is not UTF-8")

// CheckTypeURL refuses type URLs that cannot be printed: they appear in logs, metrics, pages, and the answers of CSDS.
func CheckTypeURL(url string) error {
	if utf8.ValidString(url) && words.Printable(url, "") == url {
		return nil
	}
	return grpcstatus.Errorf(codes.InvalidArgument, "type_url %q is not printable UTF-8", url)
}

func (r *Request) set(target field, content []byte) error {
	switch target {
	case fieldVersion, fieldNames, fieldNonce, fieldSubscribe, fieldUnsubscribe:
		if !utf8.Valid(content) {
			return errUTF8
		}
	}
	switch target {
	case fieldVersion:
		if len(content) <= maxVersion {
			r.Version = string(content)
		}
	case fieldNode:
		if r.Node != nil {
			return nil
		}
		if len(content) > maxNode {
			return fmt.Errorf("a node of %d bytes: the limit is %d", len(content), maxNode)
		}
		r.Node = &corev3.Node{}
		content = withoutExtensions(content)
		r.NodeCost = nodeCost(len(content))
		if err := proto.Unmarshal(content, r.Node); err != nil {
			return err
		}
		for _, text := range []*string{&r.Node.Id, &r.Node.Cluster, &r.Node.UserAgentName} {
			*text = words.Printable(*text, "")
		}
		return nil
	case fieldNames:
		r.Names = append(r.Names, r.name(content))
	case fieldTypeURL:
		if len(content) > maxTypeURL {
			return fmt.Errorf("a type URL of %d bytes: the limit is %d", len(content), maxTypeURL)
		}
		r.TypeURL = r.intern(content)
	case fieldNonce:
		r.Nonce = strings.ToValidUTF8(string(content[:min(len(content), maxNonce)]), "") // a cut one matches no response
	case fieldError:
		var err error
		if r.Err, err = rejection(content); err == nil {
			r.Err.Message = words.Printable(r.Err.GetMessage(), "\n\t")
		}
		return err
	case fieldSubscribe:
		if r.filter == nil || r.filter(content) {
			r.Subscribe = append(r.Subscribe, r.name(content))
		}
	case fieldUnsubscribe:
		r.Unsubscribe = append(r.Unsubscribe, r.name(content))
	case fieldInitial:
		key, value, err := MapEntry(content)
		if err != nil {
			return err
		}
		if !utf8.Valid(key) || !utf8.Valid(value) {
			return errUTF8
		}
		r.countInitial(content)
	}
	return nil
}

// countInitial counts an entry of initial_resource_versions. Envoy sends an empty version for names that were reported
// as missing.
func (r *Request) countInitial(entry []byte) {
	r.fingerprint = r.fingerprint.plus(entry)
	if r.filter != nil {
		if _, version, _ := MapEntry(entry); len(version) == 0 {
			return
		}
	}
	r.VersionCount++
}

func (r *Request) name(v []byte) string {
	r.Cost += NameCost(len(v))
	return string(v)
}

// MaxReason bounds the kept bytes of a client's reason for a rejection.
const MaxReason = 4 << 10

// rejection decodes the code and the message of a google.rpc.Status.
func rejection(b []byte) (*status.Status, error) {
	result := &status.Status{}
	return result, eachField(b, func(number protowire.Number, wireType protowire.Type, value []byte) {
		switch {
		case number == 1 && wireType == protowire.VarintType:
			code, _ := protowire.ConsumeVarint(value)
			result.Code = int32(code) //nolint:gosec // as protobuf has it
		case number == 2 && wireType == protowire.BytesType:
			text, _ := protowire.ConsumeBytes(value)
			result.Message = shorten(text)
		}
	})
}

// eachField calls visit with the encoded fields of a message, up to the first broken one.
func eachField(message []byte, visit func(num protowire.Number, wireType protowire.Type, value []byte)) error {
	for len(message) > 0 {
		number, wireType, tagSize := protowire.ConsumeTag(message)
		if tagSize < 0 {
			return protowire.ParseError(tagSize)
		}
		size := protowire.ConsumeFieldValue(number, wireType, message[tagSize:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		visit(number, wireType, message[tagSize:tagSize+size])
		message = message[tagSize+size:]
	}
	return nil
}

// shorten returns the beginning of a text, with its full length.
func shorten(text []byte) string {
	if len(text) <= MaxReason {
		return strings.ToValidUTF8(string(text), "?")
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(string(text[:MaxReason]), "?"), len(text))
}

func (r *Request) intern(text []byte) string {
	if copied, ok := r.interned[string(text)]; ok {
		return copied
	}
	if r.interned == nil {
		r.interned = make(map[string]string)
	}
	copied := string(text)
	if len(r.interned) < 64 { // a client may make up types
		r.interned[copied] = copied
	}
	return copied
}

// The tags of the fields of an entry of a map<string, string>.
const keyTag, valueTag = 1<<3 | byte(protowire.BytesType), 2<<3 | byte(protowire.BytesType)

// shortMapEntry returns the end of the key of an entry of a map<string, string>, if key and value are in order and
// shorter than 128 bytes, as nearly all are; else zero.
func shortMapEntry(entry []byte) (end int) {
	if len(entry) < 4 || entry[0] != keyTag || entry[1] >= 0x80 {
		return 0
	}
	end = 2 + int(entry[1])
	if len(entry) < end+2 || entry[end] != valueTag || entry[end+1] >= 0x80 || len(entry) != end+2+int(entry[end+1]) {
		return 0
	}
	return end
}

// MapEntry decodes an entry of a map<string, string>.
func MapEntry(entry []byte) (key, value []byte, err error) {
	if end := shortMapEntry(entry); end > 0 {
		return entry[2:end], entry[end+2:], nil
	}
	err = eachField(entry, func(number protowire.Number, wireType protowire.Type, encoded []byte) {
		if wireType != protowire.BytesType || number > 2 {
			return
		}
		text, _ := protowire.ConsumeBytes(encoded)
		if number == 1 {
			key = text
		} else {
			value = text
		}
	})
	return key, value, err
}

// AppendMapEntry appends an entry of a map<string, string> as all encoders write it.
func AppendMapEntry(b []byte, key, value string) []byte {
	b = protowire.AppendString(append(b, keyTag), key)
	return protowire.AppendString(append(b, valueTag), value)
}
