package words_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
	"tributary/internal/words"
)

func TestPlain(t *testing.T) {
	require.Equal(t, "dial tcp 127.0.0.1:1: strange",
		words.Plain(`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: strange"`))
	require.Equal(t, "no", words.Plain("rpc error: code = PermissionDenied desc = no"))
	require.Equal(t, "nobody listens there", words.ConnectionError("a:1", "dial tcp: connect: connection refused"))
	require.Equal(t, "there is no host a", words.ConnectionError("a:1", "lookup a: no such host"))
	require.Empty(t, words.ConnectionError("a:1", "strange"))
}

// What of a certificate and a key is wrong is said without the words of the library, whichever file it is.
func TestKeyPair(t *testing.T) {
	pair, other := testutil.NewAuthority(t).Sign(&x509.Certificate{}), testutil.NewAuthority(t).Sign(&x509.Certificate{})
	for name, c := range map[string]struct{ certificate, key, want string }{
		"no certificate":    {"x", pair.Key, "there is no certificate in it"},
		"no key":            {pair.Certificate, "x", "there is no private key in it"},
		"another key":       {pair.Certificate, other.Key, "the private key does not match"},
		"turned round":      {pair.Key, pair.Certificate, "the certificate's file has a private key"},
		"certificate twice": {pair.Certificate, pair.Certificate, "the key's file has a certificate"},
	} {
		_, err := tls.X509KeyPair([]byte(c.certificate), []byte(c.key))
		require.ErrorContains(t, words.KeyPairError(err), c.want, name)
	}
	require.NoError(t, words.KeyPairError(nil))
}

func TestStream(t *testing.T) {
	for said, want := range map[string]string{
		`open: rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: ` +
			`connect: connection refused"`: "nobody listens there",
		`rpc error: code = Unavailable desc = name resolver error: produced zero ` +
			`addresses`: "the name of the host a has no address, or cannot be resolved now",
		`rpc error: code = Unavailable desc = connection error: desc = "transport: authentication handshake failed: tls: first record does ` +
			`not look like a TLS handshake"`: "it does not speak TLS",
		`rpc error: code = Unavailable desc = server is shutting down`: "server is shutting down",
		// what the server says is not said of its connection
		`rpc error: code = Unavailable desc = /rules: no such file or directory`: "/rules: no such file or directory",
		`rpc error: code = Unavailable desc = error reading from server: EOF`:    "error reading from server: EOF",
		`rpc error: code = Unavailable desc = error reading from server: read tcp 127.0.0.1:2->127.0.0.1:1: use of closed network ` +
			`connection`: "error reading from server: read tcp 127.0.0.1:2->127.0.0.1:1: use of closed network connection",
		`rpc error: code = Unavailable desc = connection error: desc = "error reading server preface: raw-read tcp 127.0.0.1:2->127.0.0.1:1: ` +
			`use of closed network connection"`: "it accepts connections, but does not answer",
		`open: rpc error: code = Unavailable desc = connection error: desc = "strange"`: "open: strange",
		`rpc error: code = Unavailable desc = connection error: desc = "transport: authentication handshake failed: tls: failed to verify ` +
			`certificate: x509: certificate is valid for b, c, not a"`: "its certificate is for b, c, and not for a",
	} {
		require.Equal(t, want, words.StreamError("a:1", said))
	}
}

func TestA(t *testing.T) {
	for thing, want := range map[string]string{
		"AuthorizationPolicy": "an AuthorizationPolicy", "EnvoyFilter": "an EnvoyFilter", "ServiceEntry": "a ServiceEntry",
		"UDPRoute": "a UDPRoute", "": "a ",
	} {
		require.Equal(t, want, words.WithArticle(thing))
	}
}
