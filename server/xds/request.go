package xds

import (
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
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"tributary/internal/words"
)

// request is a DiscoveryRequest or DeltaDiscoveryRequest. One value is reused for all requests of a stream: clients such
// as istiod repeat a node of several kilobytes on every acknowledgement, which is skipped once a node is known.
type request struct {
	// set by the owner
	delta   bool   // which of the two messages to expect
	maxCost int    // of names in one request, or of its versions; without a limit if not positive
	host    string // of the client
	due     func() bool

	size      int          // encoded
	release   func()       // ends the reservation of its memory; nil if it has none
	cost      int          // of the names: see nameCost
	versions  int          // how many initial_resource_versions there are
	print     fingerprint  // of these
	node      *corev3.Node // of the first request that has one, without its extensions
	nodeCost  int          // of that node, in the request that has it: see nodeCost
	typeURL   string
	version   string
	nonce     string
	names     []string // SotW: resource_names
	subscribe []string // delta
	unsub     []string
	initial   *versions      // initial_resource_versions
	err       *status.Status // error_detail: a NACK
	asks      bool           // for something else than before; set by the one who takes it

	whole *versions              // what it was decoded from, if there are too many names
	keeps func(name []byte) bool // of names that are subscribed to; all if nil

	interned map[string]string // type URLs seen, so that an acknowledgement allocates nothing for them
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
		1: fieldNode, 2: fieldTypeURL, 3: fieldSubscribe, 4: fieldUnsubscribe, deltaInitial: fieldInitial, 6: fieldNonce,
		7: fieldError,
	}
)

// clear forgets the request, so that nothing of it is kept until the next one.
func (r *request) clear() {
	*r = request{delta: r.delta, maxCost: r.maxCost, host: r.host, due: r.due, node: r.node, interned: r.interned, keeps: r.keeps}
}

// Due and Keep are for what reserves memory for requests.

// Due reports whether something is to be sent to the client.
func (r *request) Due() bool { return r.due() }

// Keep has release called when nothing is kept of the request any longer.
func (r *request) Keep(release func()) { r.release = release }

// nameCost is what a name counts against a limit on names. One that is very long counts as several.
func nameCost(name int) int { return 1 + name/128 }

// nodeCost is what a node of so many bytes counts against a limit on names. Decoded, it takes some six times its size. No honest
// one has as much as is free.
func nodeCost(size int) int { return max(size-freeNode, 0) / 16 }

const freeNode = 16 << 10

// withoutExtensions returns an encoded node without the list of what an Envoy was built with. That is nearly all of the node, and
// tells nothing about what the client is to be sent.
func withoutExtensions(node []byte) []byte {
	const extensions = 9
	var rest []byte
	for b := node; len(b) > 0; {
		num, typ, tag := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(num, typ, b[max(tag, 0):])
		if tag < 0 || size < 0 {
			return append(rest, b...) // to be decoded, and found to be wrong
		}
		if num != extensions {
			rest = append(rest, b[:tag+size]...)
		}
		b = b[tag+size:]
	}
	return rest
}

// decode replaces all of r but the node and what belongs to the owner. The message may come in parts, to which r.initial refers
// if it has initial_resource_versions. Decoding ends where there are too many names.
func (r *request) decode(parts ...[]byte) error {
	r.clear()
	for _, part := range parts {
		r.size += len(part)
	}
	var field []byte // that is not whole yet
	var missing int  // of it, in bytes
	var skip int     // bytes of one that means nothing
	for _, b := range parts {
		for len(b) > 0 && !r.tooMany() {
			if skip > 0 {
				n := min(skip, len(b))
				b, skip = b[n:], skip-n
				continue
			}
			source := b
			if len(field) > 0 {
				n := min(missing, len(b))
				field = append(field, b[:n]...)
				b = b[n:]
				if missing -= n; missing > 0 {
					break
				}
				source = field
			} else {
				b = nil
			}
			rest, err := r.decodeFields(source)
			if err != nil {
				return fmt.Errorf("decode discovery request: %w", err)
			}
			if field = nil; len(rest) > 0 {
				if missing = lacking(rest); missing > r.size {
					return fmt.Errorf("decode discovery request: %w", io.ErrUnexpectedEOF)
				}
				if r.isForeign(rest) {
					skip = missing
					continue
				}
				field = append(make([]byte, 0, len(rest)+missing), rest...)
			}
		}
	}
	if (len(field) > 0 || skip > 0) && !r.tooMany() {
		return fmt.Errorf("decode discovery request: %w", io.ErrUnexpectedEOF)
	}
	if r.tooMany() {
		r.initial = nil
	}
	return nil
}

// decodeKept decodes a request once more that has too many names, without those to which it subscribes that are not kept.
func (r *request) decodeKept(keeps func(name []byte) bool) error {
	whole, release := r.whole, r.release
	r.keeps = keeps
	err := r.decode(whole.parts...)
	r.keeps, r.release = nil, release
	if r.initial == nil {
		whole.free()
	} else {
		r.initial.memory = whole.memory
	}
	return err
}

// lacking returns how many bytes a field that is not whole lacks, or one if that cannot be told yet.
func lacking(b []byte) int {
	_, typ, tag := protowire.ConsumeTag(b)
	if tag < 0 {
		return 1
	}
	switch typ {
	case protowire.Fixed32Type:
		return tag + 4 - len(b)
	case protowire.Fixed64Type:
		return tag + 8 - len(b)
	case protowire.BytesType:
		if size, n := protowire.ConsumeVarint(b[tag:]); n > 0 {
			return int(min(size, math.MaxInt32)) + tag + n - len(b) //nolint:gosec // it is bounded
		}
	}
	return 1
}

// fields returns what the fields of the message mean.
func (r *request) fields() []field {
	if r.delta {
		return deltaFields[:]
	}
	return sotwFields[:]
}

// isForeign says whether b is the beginning, with the size, of a field of bytes that means nothing to us. It is passed over where it is,
// however long it is.
func (r *request) isForeign(b []byte) bool {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || typ != protowire.BytesType || int(num) < len(r.fields()) && r.fields()[num] != 0 {
		return false
	}
	_, size := protowire.ConsumeVarint(b[n:])
	return size > 0
}

// tooMany says whether there are more names than a client may have.
func (r *request) tooMany() bool { return r.maxCost > 0 && max(r.cost, r.versions) > r.maxCost }

// errGroup is of a kind of field that the protocol does not have, and that nobody can tell the size of from its beginning.
var errGroup = errors.New("a group")

// decodeFields decodes the fields of b, up to one that is not whole, which it returns.
func (r *request) decodeFields(b []byte) (rest []byte, err error) {
	fields, all, before, ascii := r.fields(), b, r.versions, isASCII(b)
	for len(b) > 0 && !r.tooMany() {
		if end := shortInitial(b); end > 0 && r.delta && shortMapEntry(b[2:end]) > 0 && (ascii || utf8.Valid(b[2:end])) {
			r.bring(b[2:end])
			b = b[end:]
			continue
		}
		num, typ, tag := protowire.ConsumeTag(b)
		size := tag
		if tag >= 0 {
			if typ == protowire.StartGroupType {
				return nil, fmt.Errorf("field %d: %w", num, errGroup)
			}
			size = protowire.ConsumeFieldValue(num, typ, b[tag:])
		}
		if size < 0 {
			if err := protowire.ParseError(size); !errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, fmt.Errorf("field %d: %w", num, err)
			}
			break
		}
		value := b[tag : tag+size]
		b = b[tag+size:]
		if typ != protowire.BytesType || int(num) >= len(fields) || fields[num] == 0 {
			continue
		}
		value, _ = protowire.ConsumeBytes(value)
		if err := r.set(fields[num], value); err != nil {
			return nil, fmt.Errorf("field %d: %w", num, err)
		}
	}
	if r.versions > before {
		if r.initial == nil {
			r.initial = &versions{}
		}
		r.initial.parts = append(r.initial.parts, all[:len(all)-len(b)])
		r.initial.print = r.print
	}
	return b, nil
}

// isASCII says whether all bytes are ASCII. To ask that once is cheaper than to ask each of thousands of entries whether it is UTF-8.
func isASCII(b []byte) bool {
	const high = 0x8080808080808080
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b)&high != 0 {
			return false
		}
	}
	return !slices.ContainsFunc(b, func(c byte) bool { return c >= utf8.RuneSelf })
}

// What of a request outlives it, and is not a name, is bounded apart from the request. The nodes of Envoys have some 30 kB.
const (
	maxNode    = 256 << 10
	maxTypeURL = 512
	maxVersion = 1 << 10 // of others than ours; longer ones are taken for none
	maxNonce   = 32      // likewise
)

// errUTF8 refuses a text, which protobuf has in UTF-8.
var errUTF8 = errors.New("a text that is not UTF-8")

// checkTypeURL refuses type URLs that cannot be printed: they get into logs, metrics, pages, and the answers of CSDS.
func checkTypeURL(url string) error {
	if utf8.ValidString(url) && words.Printable(url, "") == url {
		return nil
	}
	return grpcstatus.Errorf(codes.InvalidArgument, "type_url %q is not printable UTF-8", url)
}

func (r *request) set(f field, v []byte) error {
	switch f {
	case fieldVersion, fieldNames, fieldNonce, fieldSubscribe, fieldUnsubscribe:
		if !utf8.Valid(v) {
			return errUTF8
		}
	}
	switch f {
	case fieldVersion:
		if len(v) <= maxVersion {
			r.version = string(v)
		}
	case fieldNode:
		if r.node != nil {
			return nil
		}
		if len(v) > maxNode {
			return fmt.Errorf("a node of %d bytes: the limit is %d", len(v), maxNode)
		}
		r.node = &corev3.Node{}
		v = withoutExtensions(v)
		r.nodeCost = nodeCost(len(v))
		if err := proto.Unmarshal(v, r.node); err != nil {
			return err
		}
		for _, text := range []*string{&r.node.Id, &r.node.Cluster, &r.node.UserAgentName} {
			*text = words.Printable(*text, "")
		}
		return nil
	case fieldNames:
		r.names = append(r.names, r.name(v))
	case fieldTypeURL:
		if len(v) > maxTypeURL {
			return fmt.Errorf("a type URL of %d bytes: the limit is %d", len(v), maxTypeURL)
		}
		r.typeURL = r.intern(v)
	case fieldNonce:
		r.nonce = strings.ToValidUTF8(string(v[:min(len(v), maxNonce)]), "") // cut, it is nobody's
	case fieldError:
		var err error
		if r.err, err = rejection(v); err == nil {
			r.err.Message = words.Printable(r.err.GetMessage(), "\n\t")
		}
		return err
	case fieldSubscribe:
		if r.keeps == nil || r.keeps(v) {
			r.subscribe = append(r.subscribe, r.name(v))
		}
	case fieldUnsubscribe:
		r.unsub = append(r.unsub, r.name(v))
	case fieldInitial:
		key, value, err := mapEntry(v)
		if err != nil {
			return err
		}
		if !utf8.Valid(key) || !utf8.Valid(value) {
			return errUTF8
		}
		r.bring(v)
	}
	return nil
}

// bring counts an entry of initial_resource_versions. Envoy has the empty version of what it was told is not there.
func (r *request) bring(entry []byte) {
	r.print = r.print.brought(entry)
	if r.keeps != nil {
		if _, version, _ := mapEntry(entry); len(version) == 0 {
			return
		}
	}
	r.versions++
}

func (r *request) name(v []byte) string {
	r.cost += nameCost(len(v))
	return string(v)
}

// maxReason is how much of the reason of a rejection is kept, in bytes. It is for people, and in the hands of the client.
const maxReason = 4 << 10

// rejection decodes the code and the message of a google.rpc.Status.
func rejection(b []byte) (*status.Status, error) {
	s := &status.Status{}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		n = protowire.ConsumeFieldValue(num, typ, b)
		switch {
		case n < 0:
			return nil, protowire.ParseError(n)
		case num == 1 && typ == protowire.VarintType:
			code, _ := protowire.ConsumeVarint(b)
			s.Code = int32(code) //nolint:gosec // as protobuf has it
		case num == 2 && typ == protowire.BytesType:
			text, _ := protowire.ConsumeBytes(b)
			s.Message = shorten(text)
		}
		b = b[n:]
	}
	return s, nil
}

// shorten returns the beginning of a text, and says how much of it there was.
func shorten(text []byte) string {
	if len(text) <= maxReason {
		return strings.ToValidUTF8(string(text), "?")
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(string(text[:maxReason]), "?"), len(text))
}

func (r *request) intern(v []byte) string {
	if s, ok := r.interned[string(v)]; ok {
		return s
	}
	if r.interned == nil {
		r.interned = make(map[string]string)
	}
	s := string(v)
	if len(r.interned) < 64 { // a client that makes up types gains nothing
		r.interned[s] = s
	}
	return s
}

// The tags of the fields of an entry of a map<string, string>.
const keyTag, valueTag = 1<<3 | byte(protowire.BytesType), 2<<3 | byte(protowire.BytesType)

// shortMapEntry says where the key ends of an entry of a map<string, string>, if both key and value are as short as nearly all
// are, and in order; else zero.
func shortMapEntry(b []byte) (end int) {
	if len(b) < 4 || b[0] != keyTag || b[1] >= 0x80 {
		return 0
	}
	end = 2 + int(b[1])
	if len(b) < end+2 || b[end] != valueTag || b[end+1] >= 0x80 || len(b) != end+2+int(b[end+1]) {
		return 0
	}
	return end
}

// mapEntry decodes an entry of a map<string, string>.
func mapEntry(b []byte) (key, value []byte, err error) {
	if end := shortMapEntry(b); end > 0 {
		return b[2:end], b[end+2:], nil
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		b = b[n:]
		if typ != protowire.BytesType || num > 2 {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return nil, nil, protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		b = b[n:]
		if num == 1 {
			key = v
		} else {
			value = v
		}
	}
	return key, value, nil
}

// appendMapEntry appends an entry of a map<string, string> as all encoders write it.
func appendMapEntry(b []byte, key, value string) []byte {
	b = protowire.AppendString(append(b, keyTag), key)
	return protowire.AppendString(append(b, valueTag), value)
}
