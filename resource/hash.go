package resource

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
)

// hashLen is the length of what contentHash returns.
const hashLen = 22

// contentHash returns 128 bits of SHA-256 over labels, annotations and body, each length-prefixed, as hashLen characters.
func contentHash(labels, annotations map[string]string, body []byte) string {
	var space [1024]byte // spares allocations for most
	buf := space[:0]
	var keys [16]string
	for _, m := range []map[string]string{labels, annotations} {
		buf = binary.AppendUvarint(buf, uint64(len(m)))
		for _, k := range appendSortedKeys(keys[:0], m) {
			buf = appendString(buf, k)
			buf = appendString(buf, m[k])
		}
	}
	buf = append(buf, body...)
	sum := sha256.Sum256(buf)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// versionOf is the version of what has a hash and was created at a time. The time is apart from the hash, so that it can be
// changed without hashing the content again.
func versionOf(hash string, created instant) string {
	if created == (instant{}) {
		return hash
	}
	var space [48]byte
	b := append(space[:0], hash...)
	b = strconv.AppendInt(append(b, '.'), created.seconds, 36)
	if created.nanos != 0 {
		b = strconv.AppendInt(append(b, '.'), int64(created.nanos), 36)
	}
	return string(b)
}
