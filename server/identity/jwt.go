package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer is somebody whose JWTs are taken.
type Issuer struct {
	Issuer    string   // as in the claim iss
	Audiences []string // of which the claim aud has one
	JWKS      string   // file with the public keys, as RFC 7517 says
	ClockSkew time.Duration
}

const (
	// maxJWT bounds a token, in bytes; that is more than the headers of a request may have anyway.
	maxJWT = 16 << 10
	// maxKeys bounds the keys of an issuer: a token that names none is tried with each.
	maxKeys = 100
)

// algorithms are those of keys of which the public half is enough to verify. An issuer's public key is then never taken for a secret, as
// with HMAC, and there is no "none".
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.EdDSA, jose.ES256, jose.ES384, jose.ES512, jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	}
}

// parseKeys reads a JWKS. Keys that are no public ones, or not for signatures, are passed over.
func parseKeys(text []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New("not a JWKS: want JSON with a list of keys") // the error may cite what is in it
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) == nil && k.Valid() && k.IsPublic() && (k.Use == "" || k.Use == "sig") {
			keys = append(keys, k)
		}
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("there is no public key for signatures in it")
	case len(keys) > maxKeys:
		return nil, fmt.Errorf("more than %d keys", maxKeys)
	}
	return keys, nil
}

// errNotSigned is of a token that anybody may have made.
var errNotSigned = errors.New("the JWT was not signed by its issuer")

// verify returns what is in a JWT, and until when it holds.
func verify(raw string, issuers []Issuer, keys map[string][]jose.JSONWebKey, now time.Time) (*JWT, time.Time, error) {
	if len(raw) > maxJWT {
		return nil, time.Time{}, fmt.Errorf("JWT of more than %d bytes", maxJWT)
	}
	token, err := jwt.ParseSigned(raw, algorithms())
	if err != nil || len(token.Headers) != 1 {
		return nil, time.Time{}, errors.New("not a signed JWT, or signed in a way that is not taken")
	}
	var said jwt.Claims
	if token.UnsafeClaimsWithoutVerification(&said) != nil {
		return nil, time.Time{}, errors.New("the claims of the JWT cannot be read")
	}
	for _, is := range issuers {
		if is.Issuer != said.Issuer {
			continue
		}
		claims, err := signed(token, keys[is.JWKS])
		if err != nil {
			return nil, time.Time{}, err
		}
		if claims.Expiry == nil {
			return nil, time.Time{}, errors.New("the JWT has no end (exp)")
		}
		err = claims.ValidateWithLeeway(jwt.Expected{Issuer: is.Issuer, AnyAudience: is.Audiences, Time: now}, is.ClockSkew)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("JWT of %s: %w", is.Issuer, err)
		}
		return &JWT{claims.Issuer, claims.Subject, claims.Audience}, claims.Expiry.Time().Add(is.ClockSkew), nil
	}
	return nil, time.Time{}, errors.New("the issuer of the JWT is none of those that are trusted")
}

// signed returns the claims, if one of the keys signed them: the one that the token names, or any if it names none.
func signed(token *jwt.JSONWebToken, keys []jose.JSONWebKey) (claims jwt.Claims, err error) {
	head := token.Headers[0]
	for _, k := range keys {
		if head.KeyID != "" && k.KeyID != "" && head.KeyID != k.KeyID || k.Algorithm != "" && k.Algorithm != head.Algorithm {
			continue
		}
		if token.Claims(k.Key, &claims) == nil {
			return claims, nil
		}
		claims = jwt.Claims{}
	}
	return claims, errNotSigned
}
