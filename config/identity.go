package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"tributary/internal/address"
	"tributary/sources/transform"
)

// The lengths of what an identity and a reading are made of, in bytes.
const (
	identityName = 40
	identityHash = 8
	readingHash  = 4
)

// where is where a source reads.
type where struct {
	Address  string // the same for all that are the same
	Settings any    // of an xds source, what it asks for there
}

// Identity says where the source reads: by this a source is known from one configuration to the next, whatever
// it is called, and however often it looks. Paths count as absolute ones, and defaults count the same whether they are written out or
// not. It is fit for a file name, and begins in a way that people recognize.
func (s *Source) Identity() string {
	p := s.Settings.where(address.Shown(s.Address))
	name := nameOf(p.Address)
	return name[:min(len(name), identityName)] + "-" + hashOf(p, identityHash)
}

// Reading says what is read there and made of it: the transforms, the validation and the options. Sources of one identity
// and one reading publish the same. One of another reading is the same source, read anew. It is fit for a file name.
func (s *Source) Reading() string {
	made := struct {
		Transform *transform.Settings
		Lenient   bool
		Texts     any
	}{s.Transform, s.Validation == ValidationWarn, s.Settings.reading()}
	if rules, err := s.Rules(); err == nil && rules.Empty() {
		made.Transform = nil
	}
	return hashOf(made, readingHash)
}

func hashOf(of any, n int) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(fmt.Sprintf("config: %v", err)) // a mistake in the structs, found by any test
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:n])
}

// sorted returns names of which the order says nothing.
func sorted(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
