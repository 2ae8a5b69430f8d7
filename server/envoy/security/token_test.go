package security_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"tributary/server/envoy/model"
)

const (
	someKey = `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`
	someSet = `{"keys":[` + someKey + `]}`
	keyHost = "my-custom-ext-authz.foo.svc.cluster.local"
)

func tokensBy(t *testing.T, rules string) (*jwtv3.JwtAuthentication, *model.Security) {
	t.Helper()
	security := securedBy(t,
		"apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: t, namespace: foo}\nspec: "+
			"{jwtRules: ["+
			rules+"]}\n", nil)
	if len(security.HTTP) == 0 {
		return nil, security
	}
	require.Len(t, security.HTTP, 1)
	require.Equal(t, "envoy.filters.http.jwt_authn", security.HTTP[0].GetName())
	require.Empty(t, security.TCP)
	out := new(jwtv3.JwtAuthentication)
	require.NoError(t, security.HTTP[0].GetTypedConfig().UnmarshalTo(out))
	require.Empty(t, model.Refused(out))
	return out, security
}

// TestTokens compares rules of tokens with istiod's translation for a gateway.
func TestTokens(t *testing.T) {
	const start = `"payloadInMetadata":"payload","normalizePayloadInMetadata":{"spaceDelimitedClaims":["scope","permission"]},` +
		`"clearRouteCache":true`
	local := fmt.Sprintf(`"localJwks":{"inlineString":%q}`, someSet)
	optional := func(name string) string {
		return `{"requiresAny":{"requirements":[{"providerName":"` + name + `"},{"allowMissing":{}}]}}`
	}
	oneRule := `"rules":[{"match":{"prefix":"/"},"requires":` + optional("origins-0") + `}],"bypassCorsPreflight":true`
	for rules, want := range map[string]string{
		"{issuer: i, jwks: '" + someSet + "'}": `{"providers":{"origins-0":{"issuer":"i",` + local + `,` + start + `}},` +
			oneRule + `}`,
		"{issuer: i, jwksUri: 'http://unused.internal/', jwks: '" + someSet +
			"'}": `{"providers":{"origins-0":{"issuer":"i",` + local + `,` +
			start + `}},` + oneRule + `}`,
		"{issuer: i, jwks: '" + someSet + `', audiences: [a, b], forwardOriginalToken: true, outputPayloadToHeader: x-payload,
  fromHeaders: [{name: x-token, prefix: "Token "}], fromParams: [p], fromCookies: [c],
  outputClaimToHeaders: [{header: x-sub, claim: sub}, {header: x-deep, claim: a.b}]}`: `{"providers":{"origins-0":{"issuer":"i",` +
			`"audiences":["a","b"],"forward":true,"forwardPayloadHeader":"x-payload","fromHeaders":[{"name":"x-token","valuePrefix":"Token "}],` +
			`"fromParams":["p"],"fromCookies":["c"],"claimToHeaders":[{"headerName":"x-sub","claimName":"sub"},{"headerName":"x-deep",` +
			`"claimName":"a.b"}],` + local + `,` + start + `}},` + oneRule + `}`,
		"{issuer: i, jwksUri: 'http://" + keyHost +
			":9000/keys', timeout: 2s}": `{"providers":{"origins-0":{"issuer":"i","remoteJwks":{` +
			`"httpUri":{"uri":"http://` + keyHost + `:9000/keys","cluster":"outbound|9000||` + keyHost + `","timeout":"2s"},` +
			`"cacheDuration":"300s"},` + start + `}},` + oneRule + `}`,
		"{issuer: z, jwks: '" + someSet + "'}, {issuer: a, jwks: '" + someSet +
			"'}": `{"providers":{"origins-0":{"issuer":"a",` + local + `,` +
			start + `},"origins-1":{"issuer":"z",` + local + `,` + start +
			`}},"rules":[{"match":{"prefix":"/"},"requires":{"requiresAny":{` +
			`"requirements":[{"providerName":"origins-0"},{"providerName":"origins-1"},{"requiresAll":{"requirements":[` +
			optional("origins-0") +
			`,` + optional("origins-1") + `]}}]}}}],"bypassCorsPreflight":true}`,
		"{issuer: z, presence: REQUIRED, jwks: '" + someSet + "'}": `{"providers":{"origins-0":{"issuer":"z",` + local + `,` +
			start +
			`}},"rules":[{"match":{"prefix":"/"},"requires":{"providerName":"origins-0"}}],"bypassCorsPreflight":true}`,
		"{issuer: z, presence: REQUIRED, jwks: '" + someSet + "'}, {issuer: a, jwks: '" + someSet +
			"'}": `{"providers":{"origins-0":{` +
			`"issuer":"a",` + local + `,` + start + `},"origins-1":{"issuer":"z",` + local + `,` + start +
			`}},"rules":[{"match":{` +
			`"prefix":"/"},"requires":{"requiresAll":{"requirements":[{"providerName":"origins-1"},` + optional("origins-0") +
			`]}}}],"bypassCorsPreflight":true}`,
	} {
		got, security := tokensBy(t, rules)
		wanted := new(jwtv3.JwtAuthentication)
		require.NoError(t, protojson.Unmarshal([]byte(want), wanted))
		require.Equal(t, protojson.Format(wanted), protojson.Format(got), rules)
		require.Empty(t, security.Findings, rules)
	}
	noRules, _ := tokensBy(t, "")
	require.Nil(t, noRules)
	spaces, _ := tokensBy(t, "{issuer: i, jwks: '"+someSet+"', timeout: 5s}")
	require.Len(t, spaces.GetProviders(), 1)
}

// Without keys that Envoy takes, no token is accepted, and Envoy does not reject the listener.
func TestTokensWithoutKeys(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	point, err := ec.PublicKey.Bytes()
	require.NoError(t, err)
	base64url := base64.RawURLEncoding.EncodeToString
	curve := fmt.Sprintf(`"kty":"EC","crv":"P-256","x":%q`, base64url(point[1:33]))
	rsa := `"kty":"RSA","e":"AQAB","n":"` + base64url(append(make([]byte, 0, 256), strings.Repeat("\xff", 256)...)) + `"`
	for keys, good := range map[string]bool{
		someSet:                                true,
		`{"keys":[{` + rsa + `}]}`:             true,
		`{"keys":[{"kty":1},` + someKey + `]}`: true,
		`{"keys":[{` + curve + `,"y":"` + base64url(point[33:]) + `"}]}`:               true,
		`{"keys":[{` + curve + `,"y":"` + base64url(point[33:]) + `","alg":"ES256"}]}`: true,
		`{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`:                                      true,
		`{"keys":[{` + curve + `,"y":"` + base64url(point[33:]) + `","alg":"RS256"}]}`: false,
		`{"keys":[{` + curve + `,"y":"` + base64url(point[1:33]) + `"}]}`:              false,
		`{"keys":[{` + curve + `}]}`:                                                   false,
		`{"keys":[{` + strings.Replace(rsa, "AQAB", "AA", 1) + `}]}`:                   false,
		`{"keys":[{"kty":"RSA","e":"AQAB","n":"AQAB"}]}`:                               false,
		`{"keys":[{"kty":"RSA"}]}`:                                                     false,
		`{"keys":[]}`:                                                                  false,
		`{"keys":[{"kty":"other"}]}`:                                                   false,
		`{"keys":{}}`:                                                                  false,
		someKey:                                                                        false,
		`{"keys":[` + someKey + `],"keys":[]}`:                                         false,
		`none`:                                                                         false,
	} {
		got, s := tokensBy(t, "{issuer: i, jwks: '"+keys+"'}")
		inline := got.GetProviders()["origins-0"].GetLocalJwks().GetInlineString()
		require.Equal(t, good, len(s.Findings) == 0, "%s: %v", keys, s.Findings)
		require.Equal(t, good, inline == keys, keys)
		if !good {
			require.Contains(t, inline, "Ed25519", keys)
		}
	}
	for rules, why := range map[string]string{
		"{issuer: i}": "neither jwks nor jwksUri",
		"{issuer: i, jwksUri: 'https://unknown.internal/keys'}": "there is no service " +
			"unknown.internal",
		"{issuer: i, jwksUri: 'https://" + keyHost + "/keys'}":                                   "has no port 443",
		"{issuer: i, jwksUri: 'ftp://" + keyHost + "/keys'}":                                     "is not supported",
		"{issuer: i, jwksUri: 'http://" + keyHost + ":99999/keys'}":                              "has no port 99999",
		"{issuer: i, jwks: '" + someSet + "', outputPayloadToHeader: \"a\\nb\"}":                 "Envoy would refuse it",
		"{issuer: i, jwks: '" + someSet + "', fromHeaders: [{name: \"\"}], audiences: [a]}":      "Envoy would refuse it",
		"{issuer: i, jwksUri: 'http://" + keyHost + ":9000/', timeout: -1s}":                     "Envoy would refuse it",
		"{issuer: i, jwks: '" + someSet + "', outputClaimToHeaders: [{header: \"\", claim: x}]}": "Envoy would refuse it",
	} {
		jwtAuthentication, s := tokensBy(t, rules)
		require.Len(t, s.Findings, 1, rules)
		require.Contains(t, s.Findings[0].Why, why, rules)
		require.Contains(t, s.Findings[0].Why, "no token of the issuer is accepted", rules)
		require.Contains(t, jwtAuthentication.GetProviders()["origins-0"].GetLocalJwks().GetInlineString(), "Ed25519", rules)
		require.Equal(t, "i", jwtAuthentication.GetProviders()["origins-0"].GetIssuer())
	}
}
