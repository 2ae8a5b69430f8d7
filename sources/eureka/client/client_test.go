package client_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/adsc"
	"tributary/sources/eureka/client"
	"tributary/sources/eureka/eurekatest"
	"tributary/sources/eureka/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		a, err := client.ParseAddress(address)
		require.NoError(t, err, address)
		require.Equal(t, want, fmt.Sprint(a.Servers, " ", a.Path, " ", a.Secure, " ", a.User), address)
	}
	a, err := client.ParseAddress("eureka://me:p%40ss:w@h")
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
		_, err := client.ParseAddress(address)
		require.ErrorContains(t, err, "address: ", address)
		require.NotContains(t, err.Error(), "secret")
	}
}

func newClient(t *testing.T, address, credentialsFile string) *client.Client {
	a, err := client.ParseAddress(address)
	require.NoError(t, err)
	c := client.New(a, credentialsFile, nil)
	t.Cleanup(c.Close)
	return c
}

// TestOne asks for single instances: one that is there, one that is not, and one of a server that does not tell.
func TestOne(t *testing.T) {
	server := eurekatest.Start(t)
	server.Put("orders", eurekatest.Instance("a", "10.0.0.1", 80, nil))
	c := newClient(t, server.Address(), "")
	key := wire.Key{App: "ORDERS", ID: "a"}
	r, err := c.One(t.Context(), server.Host(), key)
	require.NoError(t, err)
	require.Equal(t, key, r.Instances[0].Key)
	require.Equal(t, "10.0.0.1", r.Instances[0].IP)
	r, err = c.One(t.Context(), server.Host(), wire.Key{App: "ORDERS", ID: "b/c ?d"})
	require.NoError(t, err)
	require.Empty(t, r.Instances)
	server.Answer("/apps/ORDERS/a", http.StatusForbidden)
	_, err = c.One(t.Context(), server.Host(), key)
	require.ErrorIs(t, err, client.ErrDenied)
}

// TestRefusals is the table of statuses: of all applications, and of changes.
func TestRefusals(t *testing.T) {
	s := eurekatest.Start(t)
	c := newClient(t, s.Address(), "")
	for status, want := range map[int]struct{ denied, silent bool }{
		http.StatusUnauthorized:        {denied: true},
		http.StatusForbidden:           {denied: true, silent: true},
		http.StatusNotFound:            {silent: true},
		http.StatusMethodNotAllowed:    {silent: true},
		http.StatusNotImplemented:      {silent: true},
		http.StatusInternalServerError: {},
		http.StatusServiceUnavailable:  {},
		http.StatusTooManyRequests:     {},
		http.StatusFound:               {},
		http.StatusNoContent:           {},
	} {
		s.Answer("/apps", status)
		s.Answer("/apps/delta", status)
		_, err := c.All(t.Context(), s.Host())
		require.ErrorContains(t, err, "GET http://"+s.Host()+"/eureka/apps: ")
		require.ErrorContains(t, err, fmt.Sprint(status))
		require.NotErrorIs(t, err, client.ErrNoChanges)
		if want.denied {
			require.ErrorIs(t, err, client.ErrDenied)
		} else {
			require.NotErrorIs(t, err, client.ErrDenied)
		}
		_, err = c.Changes(t.Context(), s.Host())
		if want.silent {
			require.ErrorIs(t, err, client.ErrNoChanges)
		} else {
			require.Error(t, err)
			require.NotErrorIs(t, err, client.ErrNoChanges)
		}
	}
}

func TestWhatIsNoAnswer(t *testing.T) {
	s := eurekatest.Start(t)
	c := newClient(t, s.Address(), "")
	for _, body := range []string{"<html>", `{"applications":`, `{"timestamp":1}`} {
		s.Say("/apps", body)
		_, err := c.All(t.Context(), s.Host())
		require.ErrorContains(t, err, "no answer of a Eureka", body)
	}
	s.Say("/apps", `"`+strings.Repeat("x", 64<<20)+`"`)
	_, err := c.All(t.Context(), s.Host())
	require.ErrorContains(t, err, "more than 64 MiB")
	s.Say("/apps", "")
	s.Put("orders", eurekatest.Instance("a", "10.0.0.1", 80, nil))
	all, err := c.All(t.Context(), s.Host())
	require.NoError(t, err)
	require.Len(t, all.Instances, 1)
	require.LessOrEqual(t, all.Ahead.Abs().Seconds(), 5.0)
	same, err := c.All(t.Context(), s.Host())
	require.NoError(t, err)
	require.Equal(t, all.Sum, same.Sum)
}

func TestCredentials(t *testing.T) {
	s := eurekatest.Start(t)
	s.Ask("me:p@ss")
	ask := func(c *client.Client) error { _, err := c.All(t.Context(), s.Host()); return err }
	require.ErrorIs(t, ask(newClient(t, s.Address(), "")), client.ErrDenied)
	require.NoError(t, ask(newClient(t, "eureka://me:p%40ss@"+s.Host(), "")))

	file := filepath.Join(t.TempDir(), "credentials")
	c := newClient(t, s.Address(), file)
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
	a, err := client.ParseAddress("eureka+https://" + host)
	require.NoError(t, err)
	for skip, ok := range map[bool]bool{true: true, false: false} {
		secure, err := (&adsc.TLS{Mode: adsc.TLSSimple, InsecureSkipVerify: skip}).Dialer()
		require.NoError(t, err)
		c := client.New(a, "", secure)
		_, err = c.All(t.Context(), host)
		require.Equal(t, ok, err == nil, err)
		c.Close()
	}
}
