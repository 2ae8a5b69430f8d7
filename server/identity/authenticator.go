package identity

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Settings name the proofs that are accepted in addition to certificates.
type Settings struct {
	Tokens  string // file of hashed tokens; empty accepts no tokens
	Issuers []Issuer
}

// maxFileBytes is the largest size of a file.
const maxFileBytes = 4 << 20

// Authenticator verifies tokens and JWTs with the content of files. It is safe for concurrent use, except for Refresh.
type Authenticator struct {
	// read-only
	settings Settings
	log      *slog.Logger

	// owned by the caller of Refresh
	contents map[string][]byte // by file: the last valid content
	faults   map[string]string // by file: the last error

	mu     sync.RWMutex
	tokens []hashedToken
	keys   map[string][]jose.JSONWebKey // by file
}

// FileError names a file that cannot be read or decoded.
type FileError struct {
	File string
	Err  error
}

func (e *FileError) Error() string { return e.File + ": " + e.Err.Error() }

// Unwrap returns the error without the file.
func (e *FileError) Unwrap() error { return e.Err }

// NewAuthenticator reads the files of the settings. An error is a *FileError.
func NewAuthenticator(settings Settings, log *slog.Logger) (*Authenticator, error) {
	authenticator := &Authenticator{
		settings: settings, log: log, contents: make(map[string][]byte), faults: make(map[string]string),
		keys: make(map[string][]jose.JSONWebKey),
	}
	for _, file := range authenticator.files() {
		if _, err := authenticator.load(file); err != nil {
			return nil, &FileError{file, err}
		}
	}
	return authenticator, nil
}

// Tokens returns the names of the accepted tokens.
func (a *Authenticator) Tokens() (names []string) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, token := range a.tokens {
		names = append(names, token.name)
	}
	return names
}

func (a *Authenticator) files() (files []string) {
	if a.settings.Tokens != "" {
		files = append(files, a.settings.Tokens)
	}
	for _, issuer := range a.settings.Issuers {
		files = append(files, issuer.JWKS)
	}
	return files
}

// load puts the present content of a file in force. Errors do not name the file.
func (a *Authenticator) load(file string) (changed bool, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return false, errors.Unwrap(err)
	}
	if info.Size() > maxFileBytes {
		return false, fmt.Errorf("more than %d bytes", maxFileBytes)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return false, errors.Unwrap(err)
	}
	if previous, loaded := a.contents[file]; loaded && bytes.Equal(content, previous) {
		return false, nil
	}
	tokens, keys := a.tokens, maps.Clone(a.keys)
	if file == a.settings.Tokens {
		tokens, err = parseTokens(content)
	} else {
		keys[file], err = parseKeys(content)
	}
	if err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.contents[file], a.tokens, a.keys = content, tokens, keys
	return true, nil
}

// Refresh reads the files again, and reports whether the proofs changed. An invalid file keeps its previous content in
// force, and is logged once. A nil Authenticator has no files.
func (a *Authenticator) Refresh() (changed bool) {
	if a == nil {
		return false
	}
	for _, file := range a.files() {
		loaded, err := a.load(file)
		switch {
		case err == nil:
			delete(a.faults, file)
		case a.faults[file] != err.Error():
			a.faults[file] = err.Error()
			a.log.Error("identity: file is invalid, its previous content stays in force", "file", file, "err", err)
		}
		if loaded {
			a.log.Info("identity: file reloaded", "file", file)
			changed = true
		}
	}
	return changed
}

// ErrPlaintext rejects a token that may have been read on its way.
var ErrPlaintext = errors.New("a token came over plaintext from another machine: use the listener with TLS, and " +
	"replace the token")

// Authenticate returns the identity of a connection together with the bearer token of its Authorization headers. An
// invalid token is an error; no header adds no proof. Errors contain no part of the token. A nil Authenticator ignores
// the headers.
func (a *Authenticator) Authenticate(connection *Identity, headers []string) (*Identity, error) {
	if a == nil || len(headers) == 0 {
		return connection, nil
	}
	if len(headers) > 1 {
		return nil, errors.New("more than one header Authorization")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "bearer") || token == "" {
		return nil, errors.New("the header Authorization is not a bearer token")
	}
	if !connection.Secure && !connection.IsLocal() {
		return nil, ErrPlaintext
	}
	a.mu.RLock()
	tokens, keys := a.tokens, a.keys
	a.mu.RUnlock()
	client := *connection
	if client.Token = tokenName(token, tokens); client.Token != "" {
		return &client, nil
	}
	if len(a.settings.Issuers) == 0 || strings.Count(token, ".") != 2 {
		return nil, errors.New("the token is unknown or revoked")
	}
	claims, expires, err := verifyJWT(token, a.settings.Issuers, keys, time.Now())
	if err != nil {
		return nil, err
	}
	if client.JWT = claims; client.Expires.IsZero() || expires.Before(client.Expires) {
		client.Expires = expires
	}
	return &client, nil
}
