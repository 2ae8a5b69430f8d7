package identity

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

const (
	// tokenPrefix lets people and secret scanners recognize tokens.
	tokenPrefix = "tributary-"
	// hashPrefix names the hash of tokens. A token has 256 random bits, so that a slow or keyed hash would add no
	// protection, and would cost time with each stream.
	hashPrefix = "sha256:"
)

// MaxTokens is the largest number of tokens in a file. The token of a client is compared with each.
const MaxTokens = 10_000

// hashedToken is a line of the token file.
type hashedToken struct {
	name string
	hash [sha256.Size]byte
}

var (
	tokenNames = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)
	tokenLine  = regexp.MustCompile(`^(\S+)[ \t]+` + hashPrefix + `([0-9A-Fa-f]{64})$`)
)

// NewToken makes a token, and its line in a token file. Several tokens may have the same name, so that a new token can
// replace an old one.
func NewToken(name string) (token, line string, err error) {
	if !tokenNames.MatchString(name) {
		return "", "", fmt.Errorf("name of a token: want letters, digits and `.` `_` `-` within, got %q", name)
	}
	random := make([]byte, sha256.Size)
	_, _ = rand.Read(random) // never fails
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(random)
	hash := sha256.Sum256([]byte(token))
	return token, name + " " + hashPrefix + hex.EncodeToString(hash[:]) + "\n", nil
}

// parseTokens decodes a token file. Lines that begin with # are comments. Errors name the line without its content,
// because the line may contain a token by mistake.
func parseTokens(content []byte) (tokens []hashedToken, err error) {
	number := 0
	for line := range bytes.Lines(content) {
		number++
		text := strings.TrimSpace(string(line))
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		fields := tokenLine.FindStringSubmatch(text)
		if fields == nil || !tokenNames.MatchString(fields[1]) {
			return nil, fmt.Errorf("line %d: want a NAME and %sHASH, as `tributary token new` writes them", number, hashPrefix)
		}
		token := hashedToken{name: fields[1]}
		_, _ = hex.Decode(token.hash[:], []byte(fields[2])) // tokenLine admits hexadecimal digits only
		if tokens = append(tokens, token); len(tokens) > MaxTokens {
			return nil, fmt.Errorf("more than %d tokens", MaxTokens)
		}
	}
	return tokens, nil
}

// tokenName returns the name of a token, or "" for an unknown token. Its duration does not depend on the token.
func tokenName(token string, tokens []hashedToken) (name string) {
	hash := sha256.Sum256([]byte(token))
	for i := range tokens {
		if subtle.ConstantTimeCompare(hash[:], tokens[i].hash[:]) == 1 {
			name = tokens[i].name
		}
	}
	return name
}
