package model

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"google.golang.org/protobuf/proto"

	"tributary/resource"
)

// Key is equal only for equal views, whatever the content of clients and objects: each part follows its length.
type Key [sha256.Size]byte

// Digest assembles a key, or a part of one. The zero value is empty.
type Digest []byte

// Text adds texts.
func (digest *Digest) Text(parts ...string) {
	for _, p := range parts {
		*digest = append(binary.AppendUvarint(*digest, uint64(len(p))), p...)
	}
}

// Number adds a number.
func (digest *Digest) Number(n int64) { *digest = binary.AppendVarint(*digest, n) }

// Flag adds a condition.
func (digest *Digest) Flag(value bool) { digest.Text(strconv.FormatBool(value)) }

// Object adds the key of an object.
func (digest *Digest) Object(key resource.Key) {
	digest.Text(string(key.Kind), key.Namespace, key.Name)
}

// Findings adds objects and their findings.
func (digest *Digest) Findings(objects []resource.Key, findings Findings) {
	digest.Number(int64(len(objects)))
	for _, key := range objects {
		digest.Object(key)
	}
	for _, f := range findings {
		digest.Object(f.Object)
		digest.Text(f.Field, f.Why)
		digest.Flag(f.Effective)
	}
}

// AddMessages adds messages.
func AddMessages[M proto.Message](digest *Digest, list ...M) {
	digest.Number(int64(len(list)))
	for _, m := range list {
		digest.Text(string(MustMarshal(m)))
	}
}
