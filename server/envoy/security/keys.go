package security

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"math/bits"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// noKeys makes Envoy accept no token. Envoy rejects a listener with an empty set of keys. So it has the SHA-256 of
// "no token is accepted", and no private key exists for that.
const noKeys = `{"keys":[{"kty":"OKP","crv":"Ed25519",` + //nolint:gosec // public
	`"x":"bO7KkZmKErhepq3UGIQ_bCRmvmi9jzq6IbQwqnwbuPo"}]}`

// keysProblem returns the reason why Envoy would reject a set of keys, and the listener with it: it needs a supported
// key.
func keysProblem(text string) string {
	var keySet struct {
		Keys []json.RawMessage `json:"keys"`
	}
	err := protojson.Unmarshal([]byte(text), new(structpb.Struct)) // Envoy parses a Struct
	if err == nil {
		err = json.Unmarshal([]byte(text), &keySet)
	}
	if err != nil {
		return "jwks is not a set of keys: " + err.Error()
	}
	if !slices.ContainsFunc(keySet.Keys, isSupportedKey) {
		return "jwks has no key that Envoy knows"
	}
	return ""
}

// Limits of Envoy's library on RSA, in bits.
const (
	minModulus  = 1024
	maxModulus  = 8192
	maxExponent = 32
)

func isSupportedKey(raw json.RawMessage) bool {
	var webKey jose.JSONWebKey
	if webKey.UnmarshalJSON(raw) != nil {
		return false
	}
	forAlgorithm := func(algorithms string) bool {
		return webKey.Algorithm == "" ||
			slices.Contains(strings.Fields(algorithms), webKey.Algorithm)
	}
	switch key := webKey.Key.(type) {
	case *rsa.PublicKey:
		return forAlgorithm("RS256 RS384 RS512 PS256 PS384 PS512") && key.N.Bit(0) == 1 && key.N.BitLen() >= minModulus &&
			key.N.BitLen() <= maxModulus && key.E&1 == 1 && bits.Len(uint(key.E)) <= maxExponent //nolint:gosec // it is positive
	case *ecdsa.PublicKey:
		return forAlgorithm(map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}[key.Params().Name])
	case ed25519.PublicKey:
		return forAlgorithm("EdDSA")
	case []byte:
		return forAlgorithm("HS256 HS384 HS512") && len(key) > 0
	}
	return false
}
