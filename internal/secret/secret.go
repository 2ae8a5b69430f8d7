// Package secret has texts that are not to be seen.
package secret

import (
	"fmt"
	"io"
)

// Text is a string that no message, log or dump shows: not even as a field that fmt reads without asking its methods,
// which is why it is behind a pointer.
type Text struct{ value *string }

// New hides value.
func New(value string) Text {
	if value == "" {
		return Text{}
	}
	return Text{&value}
}

// Reveal returns what is hidden.
func (s Text) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Format prints a mark for what is there, for every verb.
func (s Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// String returns a mark for what is there.
func (s Text) String() string {
	if s.value == nil {
		return ""
	}
	return Mark
}

// MarshalText keeps it out of JSON and YAML.
func (s Text) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
