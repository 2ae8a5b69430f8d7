package dial

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/adsc"
)

// TestMissingTokenFile_NamedAtStart has a slip in its name, which Consul would be asked with as a stranger,
// or not at all.
func TestMissingTokenFile_NamedAtStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	const why = ": no such file or directory: nothing is read until it is there"
	require.Equal(t, []string{"tokenFile: open " + file + why}, Settings{TokenFile: file}.Doubts())
	require.NoError(t, os.WriteFile(file, []byte("t"), 0o600))
	require.Empty(t, Settings{TokenFile: file}.Doubts())
	require.NoError(t, os.Remove(file))
	require.Empty(t, Settings{}.Doubts())
	t.Setenv("CONSUL_HTTP_TOKEN_FILE", file)
	require.Equal(t, []string{"CONSUL_HTTP_TOKEN_FILE: open " + file + why}, Settings{}.Doubts())
}

// TestTLSMismatch_Named has a Consul with TLS and a client without it, and the other way round.
func TestTLSMismatch_Named(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	secure, plain := httptest.NewTLSServer(answer), httptest.NewServer(answer)
	defer secure.Close()
	defer plain.Close()
	asks := func(s *httptest.Server, tls *adsc.TLS) error {
		c, err := New(Address{Host: s.Listener.Addr().String()}, Settings{TLS: tls})
		require.NoError(t, err)
		defer c.Close()
		_, _, err = c.Catalog().Services(nil)
		return err
	}
	err := asks(secure, nil)
	require.ErrorContains(t, err, "Client sent an HTTP request to an HTTPS server. (it speaks TLS alone: write +https behind the scheme of "+
		"the address, or see tlsSettings)")
	require.Equal(t, Unreachable, Classify(err).Kind)
	err = asks(plain, &adsc.TLS{Mode: adsc.TLSSimple, InsecureSkipVerify: true})
	require.ErrorContains(t, err, "(it does not speak TLS: see tlsSettings)")
	require.Equal(t, Unreachable, Classify(err).Kind)
	require.Equal(t, Refused, Classify(asks(plain, nil)).Kind, "another question that is wrong is no matter of TLS")
}
