package dial

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"tributary/internal/secret"
)

// Secret is a token.
type Secret = secret.Text

// NewSecret hides value.
func NewSecret(value string) Secret { return secret.New(value) }

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

// Doubts are what is hardly meant of settings, though it can be done: each begins with the key or variable at fault. A file with a token
// may come later.
func (s Settings) Doubts() []string {
	if _, err := newTokens(s.TokenFile).current(); err != nil {
		return []string{err.Error() + ": nothing is read until it is there"}
	}
	return nil
}

// TokenError says that there is no token to ask with. Without one, a query would be answered by what strangers may see.
type TokenError struct{ err error }

// Error implements error.
func (e *TokenError) Error() string { return e.err.Error() }

// Unwrap returns why.
func (e *TokenError) Unwrap() error { return e.err }
