package fetch_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/adsc"
	"tributary/internal/address"
	"tributary/internal/fetch"
	"tributary/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestGet shows the text or the error for each kind of answer.
func TestGet(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		user, password, _ := request.BasicAuth()
		assert.Equal(t, "me p@ss application/json", user+" "+password+" "+request.Header.Get("Accept"))
		switch request.URL.Path {
		case "/text":
			_, _ = response.Write([]byte("text"))
		case "/long":
			_, _ = response.Write([]byte(strings.Repeat("x", 9)))
		case "/denied":
			http.Error(response, strings.Repeat("x", 1<<20), http.StatusForbidden)
		case "/login":
			response.WriteHeader(http.StatusUnauthorized)
		case "/moved":
			http.Redirect(response, request, "/text", http.StatusFound)
		}
	}))
	t.Cleanup(server.Close)
	host := server.Listener.Addr().String()
	account := fetch.Account{User: "me", Password: secret.New("p@ss")}
	client := &fetch.Client{Account: account, Timeout: time.Minute, Limit: 8}
	failure := errors.New("no JSON")
	for path, test := range map[string]struct {
		message string
		code    int
		decoded error
	}{
		"/text":   {},
		"/long":   {message: "the answer has more than 8 bytes"},
		"/denied": {message: "the server refuses us: 403 Forbidden", code: http.StatusForbidden},
		"/login":  {message: "the server refuses us: 401 Unauthorized", code: http.StatusUnauthorized},
		"/moved":  {message: `302 Found, to "/text"`, code: http.StatusFound},
		"/text?a": {message: "no JSON", decoded: failure},
	} {
		read := ""
		err := client.Get(t.Context(), host, path, func(text []byte) error { read = string(text); return test.decoded })
		if test.message == "" {
			require.NoError(t, err)
			require.Equal(t, "text", read)
			continue
		}
		require.EqualError(t, err, "GET http://"+host+path+": "+test.message)
		var status *fetch.StatusError
		require.Equal(t, test.code > 0, errors.As(err, &status))
		require.True(t, status == nil || status.Code == test.code)
		require.Equal(t, strings.HasPrefix(test.message, fetch.ErrDenied.Error()), errors.Is(err, fetch.ErrDenied))
	}
}

func TestNew(t *testing.T) {
	for message, test := range map[string]struct {
		servers address.Address
		secure  *adsc.TLS
		file    string
	}{
		"credentialsFile: the address has a user, too":                  {servers: address.Address{User: "me"}, file: "file"},
		"credentialsFile: open /nonexistent: no such file or directory": {file: "/nonexistent"},
		`tlsSettings: mode: the address asks for TLS, got "DISABLE"`: {
			address.Address{Secure: true}, &adsc.TLS{Mode: adsc.TLSDisable}, "",
		},
		"tlsSettings: clientCertificate: missing; MUTUAL needs clientCertificate and privateKey": {
			secure: &adsc.TLS{Mode: adsc.TLSMutual},
		},
	} {
		_, err := fetch.New(test.servers, fetch.Settings{TLS: test.secure, CredentialsFile: test.file})
		require.EqualError(t, err, message)
	}
	client, err := fetch.New(address.Address{Secure: true}, fetch.Settings{})
	require.NoError(t, err)
	require.Equal(t, "https://host/path", client.URL("host", "/path"), "TLS is SIMPLE by default")
}
