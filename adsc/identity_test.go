package adsc_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/url"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"tributary/adsc"
	"tributary/internal/testutil"
	"tributary/internal/xdstest"
)

// jwt returns an unsigned token with these claims.
func jwt(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(claims)) + ".c2lnbmF0dXJl"
}

func TestNodeIn_GetsNamespaceOfIdentity(t *testing.T) {
	authority := newAuthority(t)
	requestsCertificate := func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequestClientCert, authority.Pool() }
	address := respondsOnce(t).Serve(t, grpc.Creds(authority.server(requestsCertificate, time.Time{})))
	const account = `{"sub":"system:serviceaccount:istio-config:tributary","aud":["istio-ca"]}`
	for name, test := range map[string]struct {
		identities []string // SPIFFE IDs and other URIs of the certificate; nil for none
		token      string
		want       string
	}{
		"empty":                              {nil, "", ""},
		"certificate":                        {[]string{"spiffe://cluster.local/ns/istio-system/sa/x"}, "", "istio-system"},
		"certificate of another domain":      {[]string{"spiffe://td.example/ns/mesh/sa/x"}, "", "mesh"},
		"second URI":                         {[]string{"https://a.example/ns/a/sa/x", "spiffe://td/ns/b/sa/x"}, "", "b"},
		"SPIFFE ID without namespace":        {[]string{"spiffe://example.org/client"}, "", ""},
		"longer SPIFFE ID":                   {[]string{"spiffe://example.org/ns/a/sa/b/c"}, "", ""},
		"SPIFFE ID of other keys":            {[]string{"spiffe://example.org/region/a/sa/b"}, "", ""},
		"namespace that breaks a node ID":    {[]string{"spiffe://example.org/ns/a~b/sa/c"}, "", ""},
		"namespace with a dot":               {[]string{"spiffe://example.org/ns/a.b/sa/c"}, "", ""},
		"certificate without URI":            {[]string{}, "", ""},
		"token":                              {nil, jwt(account), "istio-config"},
		"token with a line break":            {nil, jwt(account) + "\n", "istio-config"},
		"token of a user":                    {nil, jwt(`{"sub":"jane"}`), ""},
		"token without subject":              {nil, jwt(`{}`), ""},
		"token with claims that are no JSON": {nil, jwt(`sub`), ""},
		"opaque token":                       {nil, "s3cret", ""},
		"certificate before token":           {[]string{"spiffe://td/ns/a/sa/x"}, jwt(account), "a"},
		"token beside a plain certificate": {
			[]string{}, jwt(account), "istio-config",
		},
	} {
		t.Run(name, func(t *testing.T) {
			settings := &adsc.TLS{Mode: adsc.TLSSimple, CACertificates: authority.PEM}
			if test.identities != nil {
				template := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
				for _, identity := range test.identities {
					uri, err := url.Parse(identity)
					require.NoError(t, err)
					template.URIs = append(template.URIs, uri)
				}
				pair := authority.Sign(template)
				settings.Mode, settings.ClientCertificate, settings.PrivateKey = adsc.TLSMutual, pair.Certificate, pair.Key
			}
			config := quiet(address, subscribe(typeA, accept))
			config.TLS = settings
			if test.token != "" {
				config.TokenFile = testutil.WriteFile(t, t.TempDir(), "token", test.token)
			}
			namespaces := make(chan string, 1)
			config.NodeIn = func(namespace string) *corev3.Node {
				namespaces <- namespace
				return &corev3.Node{Id: adsc.NodeID("client", namespace)}
			}
			run(t, config)
			require.Equal(t, test.want, xdstest.Receive(t, namespaces))
		})
	}
	require.Equal(t, "sidecar~127.0.0.1~x.default~default.svc.cluster.local", adsc.NodeID("x", ""))
	require.Equal(t, "sidecar~127.0.0.1~x.a~a.svc.cluster.local", adsc.NodeID("x", "a"))
}

func TestAdvice_NamesRemedy(t *testing.T) {
	for message, want := range map[string]string{
		"rpc error: code = Unauthenticated desc = the api generator requires an authenticated control-plane identity": "15012",
		"rpc error: code = Unauthenticated desc = authentication required":                                            "15012",
		"the api generator is restricted to the control-plane (root) namespace":                                       "(istio-system)",
		`the debug info is not available for current identity: "spiffe://cluster.local/ns/shop/sa/x"`:                 "(istio-system)",
		"authorization failed: no identities ([spiffe://cluster.local/ns/istio-system/sa/x]) matched default/":        `namespace "default"`,
		"authorization failed: no identities ([spiffe://td/ns/a/sa/x spiffe://td/ns/b/sa/y]) matched shop/account":    "leave out nodeID",
		"rpc error: code = Unauthenticated desc = authentication failure":                                             "(istio-system)",
		"connection refused": "",
	} {
		advice := adsc.Advice(errors.New(message), "nodeID")
		require.Contains(t, advice, want, message)
		require.Equal(t, want == "", advice == "", message)
	}
}
