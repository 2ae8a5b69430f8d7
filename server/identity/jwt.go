package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer is a trusted issuer of JWTs.
type Issuer struct {
	Issuer    string   // the claim iss
	Audiences []string // the claim aud contains one of them
	JWKS      string   // file of the public keys (RFC 7517)
	ClockSkew time.Duration
}

const (
	// maxJWTBytes exceeds the limit of request headers.
	maxJWTBytes = 16 << 10
	// maxKeys limits the work for a token without a key ID: each key of the issuer is tried.
	maxKeys = 100
)

// signatureAlgorithms use a public key. HMAC would accept the public key as the secret, and "none" needs no key.
var signatureAlgorithms = []jose.SignatureAlgorithm{
	jose.EdDSA, jose.ES256, jose.ES384, jose.ES512, jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
}

// parseKeys decodes a JWKS. It ignores keys that are not public or not for signatures. Errors do not quote the content.
func parseKeys(content []byte) (keys []jose.JSONWebKey, err error) {
	var keySet struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(content, &keySet) != nil {
		return nil, errors.New("not a JWKS: want JSON with a list of keys")
	}
	for _, encoded := range keySet.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(encoded) == nil && key.Valid() && key.IsPublic() && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key)
		}
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("the JWKS has no public key for signatures")
	case len(keys) > maxKeys:
		return nil, fmt.Errorf("more than %d keys", maxKeys)
	}
	return keys, nil
}

// errSignature rejects a token that no key of its issuer signed.
var errSignature = errors.New("the JWT was not signed by its issuer")

// verifyJWT returns the claims of a JWT and its expiry. keys are the keys by JWKS file.
func verifyJWT(encoded string, issuers []Issuer, keys map[string][]jose.JSONWebKey, now time.Time) (
	_ *JWT, expires time.Time, err error,
) {
	if len(encoded) > maxJWTBytes {
		return nil, expires, fmt.Errorf("JWT of more than %d bytes", maxJWTBytes)
	}
	token, err := jwt.ParseSigned(encoded, signatureAlgorithms)
	if err != nil || len(token.Headers) != 1 {
		return nil, expires, errors.New("not a signed JWT, or its signature algorithm is not supported")
	}
	var unverified jwt.Claims
	if token.UnsafeClaimsWithoutVerification(&unverified) != nil {
		return nil, expires, errors.New("the claims of the JWT cannot be decoded")
	}
	index := slices.IndexFunc(issuers, func(issuer Issuer) bool { return issuer.Issuer == unverified.Issuer })
	if index < 0 {
		return nil, expires, errors.New("the issuer of the JWT is not trusted")
	}
	issuer := issuers[index]
	claims, err := verifySignature(token, keys[issuer.JWKS])
	if err != nil {
		return nil, expires, err
	}
	if claims.Expiry == nil {
		return nil, expires, errors.New("the JWT has no expiry (exp)")
	}
	expected := jwt.Expected{Issuer: issuer.Issuer, AnyAudience: issuer.Audiences, Time: now}
	if err := claims.ValidateWithLeeway(expected, issuer.ClockSkew); err != nil {
		return nil, expires, fmt.Errorf("JWT of %s: %w", issuer.Issuer, err)
	}
	return &JWT{claims.Issuer, claims.Subject, claims.Audience}, claims.Expiry.Time().Add(issuer.ClockSkew), nil
}

// verifySignature returns the claims that one of the keys signed. A key ID in the token selects the key.
func verifySignature(token *jwt.JSONWebToken, keys []jose.JSONWebKey) (claims jwt.Claims, err error) {
	header := token.Headers[0]
	for _, key := range keys {
		if header.KeyID != "" && key.KeyID != "" && header.KeyID != key.KeyID ||
			key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		claims = jwt.Claims{}
		if token.Claims(key.Key, &claims) == nil {
			return claims, nil
		}
	}
	return jwt.Claims{}, errSignature
}
