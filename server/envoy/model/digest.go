package model

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"google.golang.org/protobuf/proto"

	"tributary/resource"
)

// Key is equal for views that are equal, and for no others, whatever clients and objects say: each part stands behind its length.
type Key [sha256.Size]byte

// Digest puts a key, or a part of one, together. The zero value is empty.
type Digest []byte

// Text adds texts.
func (d *Digest) Text(parts ...string) {
	for _, p := range parts {
		*d = append(binary.AppendUvarint(*d, uint64(len(p))), p...)
	}
}

// Number adds a number.
func (d *Digest) Number(n int64) { *d = binary.AppendVarint(*d, n) }

// Flag adds a condition.
func (d *Digest) Flag(is bool) { d.Text(strconv.FormatBool(is)) }

// Object adds the key of an object.
func (d *Digest) Object(key resource.Key) { d.Text(string(key.Kind), key.Namespace, key.Name) }

// Found adds objects, and what was found in them.
func (d *Digest) Found(objects []resource.Key, found Findings) {
	d.Number(int64(len(objects)))
	for _, key := range objects {
		d.Object(key)
	}
	for _, f := range found {
		d.Object(f.Of)
		d.Text(f.Field, f.Why)
		d.Flag(f.Has)
	}
}

// AddMessages adds messages.
func AddMessages[M proto.Message](d *Digest, list ...M) {
	d.Number(int64(len(list)))
	for _, m := range list {
		d.Text(string(MustMarshal(m)))
	}
}
