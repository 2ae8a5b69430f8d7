package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"tributary/internal/address"
)

// The lengths of what an identity is made of, in bytes.
const (
	identityName = 40
	identityHash = 8
)

// Identity says what the content of the source is made of: its address, its transform and whatever settings have a bearing on
// what it publishes. Sources of one identity publish the same, whatever they are called, how often they look and with which
// credentials. It is fit for a file name, and begins in a way that people recognize.
func (s *Source) Identity() string {
	made := *s
	made.Address = address.Shown(s.Address)
	made.Name, made.Precedence, made.Guard, made.Merge = "", 0, Guard{}, Merge{}
	text, err := json.Marshal(struct {
		Source   Source
		Settings any
	}{made, s.Settings.content()})
	if err != nil {
		panic(fmt.Sprintf("config: %v", err)) // a mistake in the structs, found by any test
	}
	sum := sha256.Sum256(text)
	name := nameOf(s.Address)
	return name[:min(len(name), identityName)] + "-" + hex.EncodeToString(sum[:identityHash])
}
