package eureka

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/adsc"
	"tributary/internal/fetch"
	"tributary/sources/eureka/eurekatest"
)

func TestAddress(t *testing.T) {
	for address, want := range map[string]string{
		"eureka://h":                       "[h:8761] /eureka false ",
		"eureka://h:1/":                    "[h:1]  false ",
		"eureka://h/eureka/v2/":            "[h:8761] /eureka/v2 false ",
		"eureka+https://h/eureka":          "[h:8761] /eureka true ",
		"eureka://a,b:1/e?backup=c,a:8761": "[a:8761 b:1 c:8761] /e false ",
		"eureka://[2001:db8::1]:1,::1/e":   "[[2001:db8::1]:1 [::1]:8761] /e false ",
		"eureka://me:p%40ss:w@h":           "[h:8761] /eureka false me",
	} {
		a, err := parseAddress(address)
		require.NoError(t, err, address)
		require.Equal(t, want, fmt.Sprint(a.Servers, " ", a.Path, " ", a.Secure, " ", a.User), address)
	}
	a, err := parseAddress("eureka://me:p%40ss:w@h")
	require.NoError(t, err)
	require.Equal(t, "p@ss:w", a.Password.Reveal())
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(verb, a), "p@ss")
	}
	for _, address := range []string{
		"eureka:h", "http://h", "eureka://", "eureka:///eureka", "eureka://h:0", "eureka://h:x", "eureka://h:70000", "eureka://h,",
		"eureka://h#x", "eureka://h?zone=a",
		"eureka://h?backup=", "eureka://:secret@h", "eureka://me:se%cret@h", "eureka://h/%zz", "eureka://h?%zz", "eureka://me:secret@:1",
	} {
		_, err := parseAddress(address)
		require.ErrorContains(t, err, "address: ", address)
		require.NotContains(t, err.Error(), "secret")
	}
}

func newClient(t *testing.T, address, credentialsFile string, settings *adsc.TLS) serverClient {
	a, err := parseAddress(address)
	require.NoError(t, err)
	reader, err := fetch.New(a, fetch.Settings{TLS: settings, CredentialsFile: credentialsFile})
	require.NoError(t, err)
	return serverClient{reader}
}

func list(t *testing.T, c serverClient, server string) (*response, error) {
	return c.Listing(t.Context(), server, &response{})
}

// TestRefusals is the table of statuses.
func TestRefusals(t *testing.T) {
	server := eurekatest.Start(t)
	serverClient := newClient(t, server.Address(), "", nil)
	for status, denied := range map[int]bool{
		http.StatusUnauthorized:        true,
		http.StatusForbidden:           true,
		http.StatusNotFound:            false,
		http.StatusMethodNotAllowed:    false,
		http.StatusInternalServerError: false,
		http.StatusServiceUnavailable:  false,
		http.StatusTooManyRequests:     false,
		http.StatusFound:               false,
		http.StatusNoContent:           false,
	} {
		server.Answer("/apps", status)
		server.Answer("/apps/delta", status)
		_, err := list(t, serverClient, server.Host())
		require.ErrorContains(t, err, "GET http://"+server.Host()+"/eureka/apps: ")
		require.ErrorContains(t, err, fmt.Sprint(status))
		require.Equal(t, denied, errors.Is(err, fetch.ErrDenied))
		_, err = serverClient.Changes(t.Context(), server.Host(), &response{})
		require.ErrorContains(t, err, "GET http://"+server.Host()+"/eureka/apps/delta: ")
	}
}

func TestWhatIsNoAnswer(t *testing.T) {
	server := eurekatest.Start(t)
	serverClient := newClient(t, server.Address(), "", nil)
	for _, body := range []string{"<html>", `{"applications":`, `{"timestamp":1}`} {
		server.Say("/apps", body)
		_, err := list(t, serverClient, server.Host())
		require.ErrorContains(t, err, "no answer of a Eureka", body)
	}
	server.Say("/apps", `"`+strings.Repeat("x", 64<<20)+`"`)
	_, err := list(t, serverClient, server.Host())
	require.ErrorContains(t, err, "more than 64 MiB")
	server.Say("/apps", "")
	server.Put("orders", eurekatest.Instance("a", "10.0.0.1", 80, nil))
	response, err := list(t, serverClient, server.Host())
	require.NoError(t, err)
	require.Len(t, response.Instances, 1)
	same, err := serverClient.Listing(t.Context(), server.Host(), response)
	require.NoError(t, err)
	require.Same(t, response, same, "it is not decoded again")
}

func TestCredentials(t *testing.T) {
	server := eurekatest.Start(t)
	server.Ask("me:p@ss")
	ask := func(c serverClient) error { _, err := list(t, c, server.Host()); return err }
	require.ErrorIs(t, ask(newClient(t, server.Address(), "", nil)), fetch.ErrDenied)
	require.NoError(t, ask(newClient(t, "eureka://me:p%40ss@"+server.Host(), "", nil)))

	file := filepath.Join(t.TempDir(), "credentials")
	require.NoError(t, os.WriteFile(file, []byte("me:p@ss"), 0o600))
	c := newClient(t, server.Address(), file, nil)
	require.NoError(t, os.Remove(file))
	require.ErrorIs(t, ask(c), os.ErrNotExist)
	for text, ok := range map[string]bool{"me:p@ss\n": true, "me:old": false, "me": false, ":p@ss": false, "me:p@ss\nyou:too": false} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		err := ask(c)
		require.Equal(t, ok, err == nil, text)
		if err != nil {
			require.NotContains(t, err.Error(), "p@ss")
			require.NotContains(t, err.Error(), "old")
		}
	}
}

func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"applications":{"versions__delta":"1","apps__hashcode":"","application":[]}}`))
	}))
	defer server.Close()
	host := server.Listener.Addr().String()
	for skip, ok := range map[bool]bool{true: true, false: false} {
		c := newClient(t, "eureka+https://"+host, "", &adsc.TLS{InsecureSkipVerify: skip})
		_, err := list(t, c, host)
		require.Equal(t, ok, err == nil, err)
	}
}
