package security

import (
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// noKeys are keys by which Envoy accepts no token. Envoy rejects an empty set, and the listener with it, so there is a key: a hash, which
// nobody has the private key of.
func noKeys() string {
	x := sha256.Sum256([]byte("no token is accepted"))
	return `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + base64.RawURLEncoding.EncodeToString(x[:]) + `"}]}`
}

// keysProblem says why Envoy would reject a set of keys, and the listener with it: it needs at least one that it knows.
func keysProblem(text string) string {
	if err := protojson.Unmarshal([]byte(text), new(structpb.Struct)); err != nil { // as Envoy reads it
		return "jwks is not a set of keys: " + err.Error()
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		return "jwks is not a set of keys: " + err.Error()
	}
	if !slices.ContainsFunc(set.Keys, isKey) {
		return "jwks has no key that Envoy knows"
	}
	return ""
}

// key is a public key of a JSON Web Key Set.
type key struct {
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Algorithm string `json:"alg"`
	Curve     string `json:"crv"`
	Modulus   string `json:"n"`
	Exponent  string `json:"e"`
	X         string `json:"x"`
	Y         string `json:"y"`
	Secret    string `json:"k"`
}

// Limits of Envoy's library on RSA, in bits.
const (
	minModulus  = 1024
	maxModulus  = 8192
	maxExponent = 32
)

// curves are those that Envoy knows.
var curves = map[string]struct {
	curve     ecdh.Curve
	size      int // of a coordinate, in bytes
	algorithm string
}{
	"P-256": {ecdh.P256(), 32, "ES256"}, "P-384": {ecdh.P384(), 48, "ES384"}, "P-521": {ecdh.P521(), 66, "ES512"},
}

func isKey(raw json.RawMessage) bool {
	var k key
	if json.Unmarshal(raw, &k) != nil {
		return false
	}
	forAlgorithm := func(all ...string) bool { return k.Algorithm == "" || slices.Contains(all, k.Algorithm) }
	switch k.Type {
	case "RSA":
		n, e := number(k.Modulus), number(k.Exponent)
		return forAlgorithm("RS256", "RS384", "RS512", "PS256", "PS384", "PS512") && n.Bit(0) == 1 && n.BitLen() >= minModulus &&
			n.BitLen() <= maxModulus && e.Bit(0) == 1 && e.BitLen() > 1 && e.BitLen() <= maxExponent
	case "EC":
		c, ok := curves[k.Curve]
		x, y := number(k.X), number(k.Y)
		if !ok || !forAlgorithm(c.algorithm) || max(x.BitLen(), y.BitLen()) > 8*c.size {
			return false
		}
		point := append(x.FillBytes(make([]byte, c.size)), y.FillBytes(make([]byte, c.size))...)
		_, err := c.curve.NewPublicKey(append([]byte{4}, point...)) // not compressed
		return err == nil
	case "OKP":
		return forAlgorithm("EdDSA") && k.Curve == "Ed25519" && len(decoded(k.X)) == 32
	case "oct":
		return forAlgorithm("HS256", "HS384", "HS512") && len(decoded(k.Secret)) > 0
	}
	return false
}

func decoded(text string) []byte {
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return nil
	}
	return b
}

func number(text string) *big.Int { return new(big.Int).SetBytes(decoded(text)) }
