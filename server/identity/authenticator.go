package identity

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"tributary/internal/secret"
)

// Settings say which proofs are taken besides certificates.
type Settings struct {
	Tokens  string // file of hashed tokens; empty for none
	Issuers []Issuer
}

const (
	// lookEvery is how often the files are looked at.
	lookEvery = time.Second
	// maxFile bounds a file, in bytes.
	maxFile = 4 << 20
)

// Authenticator checks proofs by files, which it reads again when they change. It is safe for concurrent use.
type Authenticator struct {
	settings Settings
	log      *slog.Logger
	current  atomic.Pointer[files]
	trouble  map[string]string // by file; owned by Run
}

// files are what the files hold. They are not modified.
type files struct {
	texts  map[string][]byte // by name
	tokens []hashed
	keys   map[string][]jose.JSONWebKey // by file
}

// FileError is what is wrong with a file.
type FileError struct {
	File string
	Err  error
}

func (e *FileError) Error() string { return e.File + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *FileError) Unwrap() error { return e.Err }

// NewAuthenticator reads the files that settings name. An error is a *FileError.
func NewAuthenticator(settings Settings, log *slog.Logger) (*Authenticator, error) {
	a := &Authenticator{settings: settings, log: log, trouble: make(map[string]string)}
	now := &files{texts: make(map[string][]byte), keys: make(map[string][]jose.JSONWebKey)}
	for _, name := range a.names() {
		text, err := read(name)
		if err == nil {
			err = now.take(name, text, name == settings.Tokens)
		}
		if err != nil {
			return nil, &FileError{name, err}
		}
	}
	a.current.Store(now)
	return a, nil
}

// Tokens returns the names of the tokens that are taken now.
func (a *Authenticator) Tokens() (names []string) {
	for _, t := range a.current.Load().tokens {
		names = append(names, t.name)
	}
	return names
}

func (a *Authenticator) names() (all []string) {
	if a.settings.Tokens != "" {
		all = append(all, a.settings.Tokens)
	}
	for _, is := range a.settings.Issuers {
		all = append(all, is.JWKS)
	}
	return all
}

func read(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, errors.Unwrap(err) // the name is said by the caller
	case info.Size() > maxFile:
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	return text, nil
}

// take makes text what a file holds.
func (f *files) take(name string, text []byte, tokens bool) (err error) {
	if tokens {
		f.tokens, err = parseTokens(text)
	} else {
		f.keys[name], err = parseKeys(text)
	}
	f.texts[name] = text
	return err
}

// Run follows the files until ctx ends. It calls changed after each change.
func (a *Authenticator) Run(ctx context.Context, changed func()) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if a.look() {
			changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look takes up what has changed, and reports whether something has. A file that is not right keeps what it held before, which is said
// once.
func (a *Authenticator) look() (changed bool) {
	for _, name := range a.names() {
		text, err := read(name)
		if err == nil && bytes.Equal(text, a.current.Load().texts[name]) {
			delete(a.trouble, name)
			continue
		}
		if err == nil {
			next := a.current.Load().clone()
			if err = next.take(name, text, name == a.settings.Tokens); err == nil {
				a.current.Store(next)
				a.log.Info("identity: a file was read again", "file", name)
				changed = true
				delete(a.trouble, name)
				continue
			}
		}
		if a.trouble[name] != err.Error() {
			a.trouble[name] = err.Error()
			a.log.Error("identity: a file is not right, what it held before stays in force", "file", name, "err", err)
		}
	}
	return changed
}

func (f *files) clone() *files {
	return &files{texts: maps.Clone(f.texts), tokens: f.tokens, keys: maps.Clone(f.keys)}
}

// ErrPlaintext refuses a token that everybody on its way has seen.
var ErrPlaintext = errors.New("a token came over plaintext from another machine: use the listener with TLS, and replace the token")

// Authenticate returns who i is if it shows the values of the header Authorization, of which there may be none. An error, which has nothing
// of them in it, says that what it shows is not right: that is not the same as to show nothing. No settings, which is a nil Authenticator,
// look at no header.
func (a *Authenticator) Authenticate(i *Identity, headers []string) (*Identity, error) {
	if a == nil || len(headers) == 0 {
		return i, nil
	}
	if len(headers) > 1 {
		return nil, errors.New("more than one header Authorization")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "bearer") || token == "" {
		return nil, errors.New("the header Authorization is not a bearer token")
	}
	if !i.Secure && !i.Local() {
		return nil, ErrPlaintext
	}
	shown := *i
	shown.bearer = secret.New(token)
	return a.bear(&shown, time.Now())
}

// Again returns an error if what i has proven holds no longer, such as a token that is revoked. Certificates are for trust to judge, unless
// it is nil.
func (a *Authenticator) Again(i *Identity, trust func(chain []*x509.Certificate) error) error {
	if err := i.Trusted(trust); err != nil {
		return err
	}
	if i.Token == "" && i.JWT == nil {
		return nil
	}
	if a == nil {
		return errors.New("tokens are no longer taken")
	}
	now, err := a.bear(&Identity{bearer: i.bearer}, time.Now())
	if err == nil && now.Token != i.Token {
		err = errors.New("the token has another name now")
	}
	return err
}

// bear adds to i what its token says.
func (a *Authenticator) bear(i *Identity, now time.Time) (*Identity, error) {
	f := a.current.Load()
	token := i.bearer.Reveal()
	if i.Token = named(token, f.tokens); i.Token != "" {
		return i, nil
	}
	if len(a.settings.Issuers) == 0 || strings.Count(token, ".") != 2 {
		return nil, errors.New("the token is not known, or revoked")
	}
	claims, until, err := verify(token, a.settings.Issuers, f.keys, now)
	if err != nil {
		return nil, err
	}
	i.JWT = claims
	if i.Expires.IsZero() || until.Before(i.Expires) {
		i.Expires = until
	}
	return i, nil
}
