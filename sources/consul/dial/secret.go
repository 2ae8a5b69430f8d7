package dial

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
)

// Secret is a string that no message, log or dump shows: not even as a field that fmt reads without asking its methods,
// which is why it is behind a pointer.
type Secret struct{ value *string }

// NewSecret hides value.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{&value}
}

// Reveal returns what is hidden.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Format prints a mark for what is there, for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// String returns a mark for what is there.
func (s Secret) String() string {
	if s.value == nil {
		return ""
	}
	return "<secret>"
}

// MarshalText keeps it out of JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// tokens are where the ACL token comes from.
type tokens struct {
	key, file string // the file, and the key or variable that names it
	fixed     Secret // if there is no file, or nothing in it
}

// newTokens finds the token in the order of the official client: what we are told, then the file of the environment, then
// the token of the environment.
func newTokens(file string) tokens {
	t := tokens{key: "tokenFile", file: file, fixed: NewSecret(os.Getenv("CONSUL_HTTP_TOKEN"))}
	if file == "" {
		t.key, t.file = "CONSUL_HTTP_TOKEN_FILE", os.Getenv("CONSUL_HTTP_TOKEN_FILE")
	}
	return t
}

// current reads the token anew, so that one that was exchanged takes effect with the next query.
func (t tokens) current() (Secret, error) {
	if t.file == "" {
		return t.fixed, nil
	}
	text, err := os.ReadFile(t.file)
	if err != nil {
		return Secret{}, &TokenError{fmt.Errorf("%s: %w", t.key, err)}
	}
	return cmp.Or(NewSecret(strings.TrimSpace(string(text))), t.fixed), nil
}

// TokenError says that there is no token to ask with. Without one, a query would be answered by what strangers may see.
type TokenError struct{ err error }

// Error implements error.
func (e *TokenError) Error() string { return e.err.Error() }

// Unwrap returns why.
func (e *TokenError) Unwrap() error { return e.err }
