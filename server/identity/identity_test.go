package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

func TestOf(t *testing.T) {
	a := testutil.NewAuthority(t)
	spiffe, err := url.Parse("spiffe://cluster.local/ns/prod/sa/web")
	require.NoError(t, err)
	leaf := a.Sign(&x509.Certificate{URIs: []*url.URL{spiffe}, DNSNames: []string{"Web.Example"}}).Leaf
	addr := &net.TCPAddr{IP: net.ParseIP("::ffff:10.1.2.3"), Port: 4}
	i := FromConnection(addr, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}})
	require.Equal(t, "10.1.2.3", i.Address.String(), "an IPv4 address is one on a socket of IPv6, too")
	require.Equal(t, []string{"spiffe://cluster.local/ns/prod/sa/web"}, i.URIs)
	require.Equal(t, []string{"web.example"}, i.DNS)
	require.True(t, i.Secure && i.IsAuthenticated() && !i.IsLocal())
	require.Equal(t, leaf.NotAfter, i.Expires)
	require.Equal(t, "spiffe://cluster.local/ns/prod/sa/web dns:web.example", i.String())

	i = FromConnection(addr, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}})
	require.False(t, i.IsAuthenticated(), "a certificate that was not verified is none")
	require.Empty(t, i.URIs)
	require.True(t, FromConnection(&net.UnixAddr{Name: "@", Net: "unix"}, nil).IsLocal())
	require.True(t, FromConnection(&net.TCPAddr{IP: net.ParseIP("::1")}, nil).IsLocal())
	require.False(t, FromConnection(&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, nil).IsLocal())
	require.False(t, FromConnection(nil, nil).IsLocal())
}

func local() *Identity { return FromConnection(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, nil) }

func TestTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	first, line, err := NewToken("ci")
	require.NoError(t, err)
	second, line2, err := NewToken("team.web")
	require.NoError(t, err)
	require.NotContains(t, line, first)
	require.NoError(t, os.WriteFile(file, []byte("# for people\n\n"+line+line2), 0o600))
	var buffer bytes.Buffer
	authenticator, err := NewAuthenticator(Settings{Tokens: file}, slog.New(slog.NewTextHandler(&buffer, nil)))
	require.NoError(t, err)

	identity, err := authenticator.Authenticate(local(), []string{"Bearer " + first})
	require.NoError(t, err)
	require.Equal(t, "ci", identity.Token)
	identity, err = authenticator.Authenticate(local(), []string{"bearer  " + second})
	require.NoError(t, err)
	require.Equal(t, "team.web", identity.Token)
	none, err := authenticator.Authenticate(local(), nil)
	require.NoError(t, err)
	require.False(t, none.IsAuthenticated())
	for _, headers := range [][]string{
		{"Bearer " + first[:len(first)-1]},
		{"Bearer"},
		{"Basic " + first},
		{first},
		{"Bearer " + first, "Bearer " + second},
		{"Bearer a.b.c"},
		{""},
	} {
		_, err = authenticator.Authenticate(local(), headers)
		require.Error(t, err, headers)
		require.NotContains(t, err.Error(), first[10:])
	}
	far := FromConnection(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, nil)
	_, err = authenticator.Authenticate(far, []string{"Bearer " + first})
	require.ErrorIs(t, err, ErrPlaintext)
	connection := FromConnection(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, &tls.ConnectionState{})
	_, err = authenticator.Authenticate(connection, []string{"Bearer " + first})
	require.NoError(t, err)

	require.False(t, authenticator.Refresh())
	require.NoError(t, os.WriteFile(file, []byte(line+"rubbish "+second+"\n"), 0o600))
	require.False(t, authenticator.Refresh(), "a file that is not right revokes nothing, and gives nothing")
	require.False(t, authenticator.Refresh())
	require.Equal(t, 1, strings.Count(buffer.String(), "its previous content stays"), "it is said once")
	require.Contains(t, buffer.String(), "line 2")
	_, err = authenticator.Authenticate(local(), []string{"Bearer " + second})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(line), 0o600))
	require.True(t, authenticator.Refresh())
	_, err = authenticator.Authenticate(local(), []string{"Bearer " + second})
	require.ErrorContains(t, err, "revoked")
	require.NoError(t, os.WriteFile(file, []byte("other"+strings.TrimPrefix(line2, "team.web")), 0o600))
	require.True(t, authenticator.Refresh())
	renamed, err := authenticator.Authenticate(local(), []string{"Bearer " + second})
	require.NoError(t, err)
	require.NotEqual(t, identity.String(), renamed.String(), "the guard ends streams of a renamed token")
	require.NotContains(t, buffer.String(), second)
	require.False(t, (*Authenticator)(nil).Refresh())
}

func TestTokens_InvalidNamesAndLines(t *testing.T) {
	for _, name := range []string{"", "a b", "-a", "a\n", "ä", strings.Repeat("a", 129)} {
		_, _, err := NewToken(name)
		require.Error(t, err, "%q", name)
	}
	for _, text := range []string{
		"a\n", "a sha256:00\n", "a sha256:" + strings.Repeat("0", 66) + "\n",
		"a md5:" + strings.Repeat("0", 64) + "\n", "a b sha256:" + strings.Repeat("0", 64),
	} {
		_, err := parseTokens([]byte(text))
		require.Error(t, err, text)
	}
	_, err := parseTokens([]byte(strings.Repeat("a sha256:"+strings.Repeat("0", 64)+"\n", MaxTokens+1)))
	require.ErrorContains(t, err, "more than 10000 tokens")
}

// issuer signs JWTs.
type issuer struct {
	t   *testing.T
	key ed25519.PrivateKey
	id  string
}

func newIssuer(t *testing.T, id string) *issuer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return &issuer{t, key, id}
}

func (i *issuer) jwks() []byte {
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: i.id, Use: "sig", Algorithm: "EdDSA"}}})
	require.NoError(i.t, err)
	return text
}

func (i *issuer) sign(c jwt.Claims) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: i.key, KeyID: i.id}}, nil)
	require.NoError(i.t, err)
	raw, err := jwt.Signed(signer).Claims(c).Serialize()
	require.NoError(i.t, err)
	return raw
}

func TestJWT(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	ours, foreign := newIssuer(t, "1"), newIssuer(t, "1")
	file := filepath.Join(dir, "jwks")
	require.NoError(t, os.WriteFile(file, ours.jwks(), 0o600))
	authenticator, err := NewAuthenticator(Settings{Issuers: []Issuer{{
		Issuer: "https://i", Audiences: []string{"tributary"}, JWKS: file,
		ClockSkew: 30 * time.Second,
	}}}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	claims := func(change func(*jwt.Claims)) jwt.Claims {
		c := jwt.Claims{
			Issuer: "https://i", Subject: "web", Audience: jwt.Audience{"other", "tributary"},
			Expiry: jwt.NewNumericDate(now.Add(time.Hour)),
		}
		change(&c)
		return c
	}
	as := func(c jwt.Claims) (*Identity, error) {
		return authenticator.Authenticate(local(), []string{"Bearer " + ours.sign(c)})
	}
	good := claims(func(*jwt.Claims) {})
	identity, err := as(good)
	require.NoError(t, err)
	require.Equal(t, &JWT{"https://i", "web", []string{"other", "tributary"}}, identity.JWT)
	require.WithinDuration(t, now.Add(time.Hour+30*time.Second), identity.Expires, 2*time.Second)
	require.Equal(t, "jwt:https://i|web", identity.String())

	_, err = as(claims(func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(now.Add(-10 * time.Second)) }))
	require.NoError(t, err, "clocks may differ")
	for name, change := range map[string]func(*jwt.Claims){
		"expired":        func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(now.Add(-time.Minute)) },
		"not yet":        func(c *jwt.Claims) { c.NotBefore = jwt.NewNumericDate(now.Add(time.Minute)) },
		"no end":         func(c *jwt.Claims) { c.Expiry = nil },
		"other audience": func(c *jwt.Claims) { c.Audience = jwt.Audience{"other"} },
		"no audience":    func(c *jwt.Claims) { c.Audience = nil },
		"other issuer":   func(c *jwt.Claims) { c.Issuer = "https://j" },
	} {
		_, err := as(claims(change))
		require.Error(t, err, name)
	}
	_, err = authenticator.Authenticate(local(), []string{"Bearer " + foreign.sign(good)})
	require.ErrorIs(t, err, errSignature)
	raw := ours.sign(good)
	parts := strings.Split(raw, ".")
	none := "eyJhbGciOiJub25lIn0." + parts[1] + "."
	// HMAC with the public key in place of a secret.
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(ours.key.Public().(ed25519.PublicKey))}, nil)
	require.NoError(t, err)
	confused, err := jwt.Signed(signer).Claims(good).Serialize()
	require.NoError(t, err)
	for _, bad := range []string{
		none, confused, parts[0] + "." + parts[1] + ".", raw + "x", strings.Repeat("a", maxJWTBytes) + "..",
		parts[0] + ".e30." + parts[2],
	} {
		_, err := authenticator.Authenticate(local(), []string{"Bearer " + bad})
		require.Error(t, err, bad[:20])
		require.NotContains(t, err.Error(), parts[1])
	}

	_, err = as(good)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, foreign.jwks(), 0o600))
	require.True(t, authenticator.Refresh())
	_, err = as(good)
	require.ErrorIs(t, err, errSignature, "the JWKS has no key of this issuer now")
	require.NoError(t, os.WriteFile(file, []byte(`{"keys": [{"kty": "oct", "k": "AAAA"}]}`), 0o600))
	require.False(t, authenticator.Refresh(), "there is no public key in it")
}

func TestAuthenticator_MissingFile(t *testing.T) {
	_, err := NewAuthenticator(Settings{Tokens: "/nowhere/tokens"}, slog.New(slog.DiscardHandler))
	require.EqualError(t, err, "/nowhere/tokens: no such file or directory")
}

// Nothing that formats an identity shows its token.
func TestIdentity_FormatsWithoutToken(t *testing.T) {
	token, line, err := NewToken("ci")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte(line), 0o600))
	a, err := NewAuthenticator(Settings{Tokens: file}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	identity, err := a.Authenticate(local(), []string{"Bearer " + token})
	require.NoError(t, err)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		require.NotContains(t, fmt.Sprintf(format, *identity), token[len(tokenPrefix):])
		require.NotContains(t, fmt.Sprintf(format, identity), token[len(tokenPrefix):])
	}
	text, err := json.Marshal(identity)
	require.NoError(t, err)
	require.NotContains(t, string(text), token[len(tokenPrefix):])
}

func FuzzTokensAndKeys(f *testing.F) {
	f.Add([]byte("a sha256:00\n"))
	f.Add([]byte(`{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}]}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		_, _ = parseTokens(text)
		if keys, err := parseKeys(text); err == nil {
			_, _, _ = verifyJWT("eyJhbGciOiJFZERTQSJ9.e30.AAAA", []Issuer{{JWKS: "a"}}, map[string][]jose.JSONWebKey{"a": keys}, time.Now())
		}
	})
}

func FuzzJWT(f *testing.F) {
	f.Add("eyJhbGciOiJFZERTQSJ9.e30.AAAA")
	keys := map[string][]jose.JSONWebKey{"a": {{Key: ed25519.PublicKey(make([]byte, ed25519.PublicKeySize))}}}
	f.Fuzz(func(t *testing.T, raw string) {
		if _, _, err := verifyJWT(raw, []Issuer{{JWKS: "a"}}, keys, time.Now()); err == nil {
			t.Fatal("nobody signed it")
		}
	})
}
