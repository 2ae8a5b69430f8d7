package identity

import (
	"bufio"
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

// tokenPrefix is what tokens of ours begin with, so that people and scanners for secrets know them.
const tokenPrefix = "tributary-"

// hashPrefix says how tokens are hashed. A token is 256 random bits, so that nobody finds it by trying: a slow hash, or a key to it, would
// protect nothing that SHA-256 does not, and would cost time with each stream.
const hashPrefix = "sha256:"

// MaxTokens is how many there may be in a file. Each is compared with what a client shows.
const MaxTokens = 10_000

// hashed is a line of the file.
type hashed struct {
	name string
	sum  [sha256.Size]byte
}

var tokenName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

// NewToken makes a token, and the line of it in a file of tokens. Several may have one name: one that is to take the place of another.
func NewToken(name string) (token, line string, err error) {
	if !tokenName.MatchString(name) {
		return "", "", fmt.Errorf("name of a token: want letters, digits and `.` `_` `-` within, got %q", name)
	}
	random := make([]byte, sha256.Size)
	_, _ = rand.Read(random) // it never fails
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(random)
	sum := sha256.Sum256([]byte(token))
	return token, name + " " + hashPrefix + hex.EncodeToString(sum[:]) + "\n", nil
}

// parseTokens reads a file of tokens: a line for each, of its name and its hash. Lines that begin with # are for people. Errors name the
// line, and not what is in it, which may be a token that somebody wrote there by mistake.
func parseTokens(text []byte) (all []hashed, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	n := 0
	for lines.Scan() {
		n++
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		sum, ok := strings.CutPrefix(strings.TrimSpace(rest), hashPrefix)
		h := hashed{name: name}
		if m, err := hex.Decode(h.sum[:], []byte(sum[:min(len(sum), 2*sha256.Size)])); !ok || err != nil || m != sha256.Size ||
			len(sum) != 2*sha256.Size || !tokenName.MatchString(name) {
			return nil, fmt.Errorf("line %d: want a NAME and %sHASH, as `tributary token new` writes them", n, hashPrefix)
		}
		if all = append(all, h); len(all) > MaxTokens {
			return nil, fmt.Errorf("more than %d tokens", MaxTokens)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	return all, nil
}

// named returns the name of a token; empty if it is none. It takes the same time whichever it is.
func named(token string, all []hashed) (name string) {
	sum := sha256.Sum256([]byte(token))
	for i := range all {
		if subtle.ConstantTimeCompare(sum[:], all[i].sum[:]) == 1 {
			name = all[i].name
		}
	}
	return name
}
