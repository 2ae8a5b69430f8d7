package dial

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/adsc"
	"tributary/internal/secret"
	"tributary/sources"
)

func TestMain(m *testing.M) {
	for _, v := range os.Environ() { // CONSUL_ variables of the caller do not count
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "CONSUL_") {
			_ = os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

func TestParse(t *testing.T) {
	for address, want := range map[string]Address{
		"consul://a:8500":                         {Host: "a:8500"},
		"consul://[::1]:8500/":                    {Host: "[::1]:8500"},
		"consul+https://a:8501":                   {Host: "a:8501", Secure: true},
		"consul://a:8500/x/y%20z":                 {Host: "a:8500", Path: "x/y z"},
		"consul:///x":                             {Host: "localhost:8500", Path: "x"},
		"consul://a:1?dc=dc2&ns=team&partition=p": {Host: "a:1", dc: "dc2", namespace: "team", partition: "p"},
	} {
		got, err := Parse("consul", address)
		require.NoError(t, err, address)
		require.Equal(t, want, got, address)
	}
	for address, want := range map[string]string{
		"consul-kv://a:8500":      "want consul://host:port or consul+https://host:port",
		"consul://a":              `want host:port, got "a"`,
		"consul://a:x":            `want a port from 1 to 65535, got "x"`,
		"consul://u:p@a:8500":     "CONSUL_HTTP_AUTH",
		"consul://a:8500?stale=1": `unknown parameter "stale"; known: dc, ns, partition`,
		"consul://a:8500/x#y":     "write # as %23",
		"consul://a:8500/%zz":     "invalid URL escape",
	} {
		_, err := Parse("consul", address)
		require.ErrorContains(t, err, want, address)
		require.ErrorContains(t, err, "address: ", address)
	}
}

func TestPasswordsInAddress_NotShown(t *testing.T) {
	_, err := Parse("consul", "consul://me:s3cr3t@a:8500/x@y")
	require.EqualError(t, err, `address: "consul://<secret>@a:8500/x@y": a user and password stand in CONSUL_HTTP_AUTH, not in the address`)
	t.Setenv("CONSUL_HTTP_ADDR", "https://me:s3cr3t@a:8500")
	_, err = Parse("consul", "consul:///")
	require.ErrorContains(t, err, "CONSUL_HTTP_ADDR: a user and password stand in CONSUL_HTTP_AUTH")
	require.NotContains(t, err.Error(), "s3cr3t")
}

func TestParse_HostFromEnvironment(t *testing.T) {
	for value, want := range map[string]Address{
		"b:8500":                {Host: "b:8500"},
		"http://b:8500":         {Host: "b:8500"},
		"https://b:8501/consul": {Host: "b:8501", Secure: true, Prefix: "/consul"},
		"unix:///run/c.sock":    {Host: "/run/c.sock", Unix: true},
	} {
		t.Setenv("CONSUL_HTTP_ADDR", value)
		got, err := Parse("consul", "consul:///x")
		require.NoError(t, err, value)
		want.Path = "x"
		require.Equal(t, want, got, value)
	}
	for value, want := range map[string]string{
		"b":        `CONSUL_HTTP_ADDR: want host:port, got "b"`,
		"ftp://b":  `CONSUL_HTTP_ADDR: want http, https or unix, got "ftp"`,
		"http://b": `CONSUL_HTTP_ADDR: want host:port, got "b"`,
	} {
		t.Setenv("CONSUL_HTTP_ADDR", value)
		_, err := Parse("consul", "consul:///x")
		require.ErrorContains(t, err, want, value)
	}
	t.Setenv("CONSUL_HTTP_ADDR", "unix:///run/c.sock")
	_, err := Parse("consul", "consul+https:///x")
	require.ErrorContains(t, err, "unix socket")
	_, err = Parse("consul", "consul://a:8500")
	require.NoError(t, err, "the variable does not count where the address has a host")
}

func TestNew_NamesInvalidSetting(t *testing.T) {
	for _, c := range []struct {
		address, variable, value string
		tls                      *adsc.TLS
		want                     string
	}{
		{"consul://a:8500", "CONSUL_HTTP_SSL", "sure", nil, `CONSUL_HTTP_SSL: want true or false, got "sure"`},
		{"consul://a:8500", "CONSUL_HTTP_SSL_VERIFY", "no", nil, `CONSUL_HTTP_SSL_VERIFY: want true or false, got "no"`},
		{"consul+https://a:8500", "CONSUL_CLIENT_KEY", "/k", nil, "CONSUL_CLIENT_KEY: needs CONSUL_CLIENT_CERT, too"},
		{"consul+https://a:8500", "", "", &adsc.TLS{Mode: "DISABLE"}, "tlsSettings.mode: the address asks for https"},
		{"consul://a:8500", "", "", &adsc.TLS{Mode: "MUTUAL"}, "tlsSettings.clientCertificate: missing"},
		{"consul:///", "CONSUL_HTTP_ADDR", "unix:///s", &adsc.TLS{Mode: "SIMPLE"}, "tlsSettings.mode: unix:///s is a unix socket"},
	} {
		t.Run(c.want, func(t *testing.T) {
			if c.variable != "" {
				t.Setenv(c.variable, c.value)
			}
			a, err := Parse("consul", c.address)
			require.NoError(t, err)
			_, err = New(a, Settings{TLS: c.tls})
			require.ErrorContains(t, err, c.want)
		})
	}
}

// consul is a server that records the last request.
type consul struct {
	mu      sync.Mutex
	request *http.Request
	answer  func(w http.ResponseWriter)
}

func (c *consul) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request = r
	if c.answer != nil {
		c.answer(response)
		return
	}
	response.WriteHeader(http.StatusNotFound)
}

func (c *consul) token() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.request.Header.Get(tokenHeader)
}

// client makes one that is closed with the test.
func client(t *testing.T, address string, settings Settings) *Client {
	t.Helper()
	a, err := Parse("consul", address)
	require.NoError(t, err)
	c, err := New(a, settings)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func plain(t *testing.T) (*consul, string) {
	c := &consul{}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	return c, "consul://" + s.Listener.Addr().String()
}

func read(t *testing.T, c *Client) error {
	t.Helper()
	_, _, err := c.KV().Get("x", (&api.QueryOptions{}).WithContext(t.Context()))
	return err
}

func TestTokens(t *testing.T) {
	server, address := plain(t)
	require.NoError(t, read(t, client(t, address, Settings{})))
	require.Empty(t, server.token(), "the placeholder is never sent")

	t.Setenv("CONSUL_HTTP_TOKEN", "of-env")
	require.NoError(t, read(t, client(t, address, Settings{})))
	require.Equal(t, "of-env", server.token())

	dir := t.TempDir()
	ofEnv, ours := filepath.Join(dir, "env"), filepath.Join(dir, "ours")
	t.Setenv("CONSUL_HTTP_TOKEN_FILE", ofEnv)
	c := client(t, address, Settings{}) // the file need not be there yet
	err := read(t, c)
	require.ErrorContains(t, err, "CONSUL_HTTP_TOKEN_FILE: open "+ofEnv)
	require.Equal(t, Denied, Classify(err).Kind)
	for _, token := range []string{"one", "two"} {
		require.NoError(t, os.WriteFile(ofEnv, []byte(token+"\n"), 0o600))
		require.NoError(t, read(t, c))
		require.Equal(t, token, server.token(), "read for each query")
	}
	require.NoError(t, os.WriteFile(ofEnv, nil, 0o600))
	require.NoError(t, read(t, c))
	require.Equal(t, "of-env", server.token(), "an empty file is none")

	c = client(t, address, Settings{TokenFile: ours})
	require.ErrorContains(t, read(t, c), "tokenFile: open "+ours)
	require.NoError(t, os.WriteFile(ours, []byte("mine"), 0o600))
	require.NoError(t, read(t, c))
	require.Equal(t, "mine", server.token())
	_, _, err = c.KV().Get("x", &api.QueryOptions{Token: "explicit"})
	require.NoError(t, err)
	require.Equal(t, "explicit", server.token())
}

func TestEnvironmentAndQuery(t *testing.T) {
	server, address := plain(t)
	t.Setenv("CONSUL_HTTP_AUTH", "me:pass:word")
	t.Setenv("CONSUL_NAMESPACE", "n1")
	t.Setenv("CONSUL_PARTITION", "p1")
	require.NoError(t, read(t, client(t, address, Settings{})))
	user, password, _ := server.request.BasicAuth()
	require.Equal(t, []string{"me", "pass:word"}, []string{user, password})
	require.Equal(t, "ns=n1&partition=p1", server.request.URL.RawQuery)

	require.NoError(t, read(t, client(t, address+"?dc=d2&ns=n2", Settings{})))
	require.Equal(t, "dc=d2&ns=n2&partition=p1", server.request.URL.RawQuery)
	require.Equal(t, "a:1 dc d2 ns n2", client(t, "consul://a:1?dc=d2&ns=n2", Settings{}).Address.String())
}

func TestUnixSocketAndPathPrefix(t *testing.T) {
	server, address := plain(t)
	t.Setenv("CONSUL_HTTP_ADDR", strings.TrimPrefix(address, "consul://")+"/proxied")
	require.NoError(t, read(t, client(t, "consul:///", Settings{})))
	require.Equal(t, "/proxied/v1/kv/x", server.request.URL.Path)

	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(server)
	require.NoError(t, s.Listener.Close())
	s.Listener = listener
	s.Start()
	t.Cleanup(s.Close)
	t.Setenv("CONSUL_HTTP_ADDR", "unix://"+path)
	require.NoError(t, read(t, client(t, "consul:///", Settings{})))
	require.Equal(t, "/v1/kv/x", server.request.URL.Path)
}

func TestTLS(t *testing.T) {
	server := &consul{}
	s := httptest.NewUnstartedServer(server)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	host := s.Listener.Addr().String()

	err := read(t, client(t, "consul+https://"+host, Settings{}))
	require.ErrorContains(t, err, "certificate", "not one that the system trusts")
	require.Equal(t, Unreachable, Classify(err).Kind)

	t.Setenv("CONSUL_CACERT", ca)
	c := client(t, "consul+https://"+host, Settings{})
	require.True(t, c.Secure)
	require.ErrorContains(t, read(t, c), "CONSUL_CACERT: ")
	require.NoError(t, os.WriteFile(ca, cert, 0o600))
	require.NoError(t, read(t, c), "files are read for each connection")
	require.Equal(t, "HTTP/2.0", server.request.Proto)

	t.Setenv("CONSUL_HTTP_SSL", "true")
	require.NoError(t, read(t, client(t, "consul://"+host, Settings{})))
	t.Setenv("CONSUL_TLS_SERVER_NAME", "other.test")
	require.ErrorContains(t, read(t, client(t, "consul://"+host, Settings{})), "other.test")
	t.Setenv("CONSUL_HTTP_SSL_VERIFY", "false")
	require.NoError(t, read(t, client(t, "consul://"+host, Settings{})))
	t.Setenv("CONSUL_HTTP_SSL_VERIFY", "")

	require.NoError(t, read(t, client(t, "consul://"+host, Settings{TLS: &adsc.TLS{Mode: "SIMPLE", CACertificates: ca, SNI: "example.com"}})),
		"tlsSettings stand for all variables")
	require.Equal(t, "HTTP/2.0", server.request.Proto)
	err = read(t, client(t, "consul://"+host, Settings{TLS: &adsc.TLS{Mode: "SIMPLE", CACertificates: "/none"}}))
	require.ErrorContains(t, err, "tlsSettings.caCertificates: open /none")
	require.False(t, client(t, "consul://"+host, Settings{TLS: &adsc.TLS{Mode: "DISABLE"}}).Secure)
}

func TestClassifyAnswers(t *testing.T) {
	server, address := plain(t)
	c := client(t, address, Settings{})
	for _, a := range []struct {
		status     int
		body       string
		retryAfter string
		want       Failure
		state      sources.State
	}{
		{404, "", "", Failure{Kind: Success}, sources.Healthy}, // for KV there is no key
		{403, "Permission denied", "", Failure{Kind: Denied}, sources.Denied},
		{401, "", "", Failure{Kind: Denied}, sources.Denied},
		{500, "rpc error making call: ACL not found", "", Failure{Kind: Denied}, sources.Denied},
		{429, "", "7", Failure{RateLimited, 7 * time.Second}, sources.Unreachable},
		{429, "too many", "", Failure{Kind: RateLimited}, sources.Unreachable},
		{503, "slow down", "2", Failure{RateLimited, 2 * time.Second}, sources.Unreachable},
		{503, "rate limit exceeded for operation that can only be performed by the leader", "", Failure{Kind: RateLimited}, sources.Unreachable},
		{503, "", "", Failure{Kind: Unreachable}, sources.Unreachable},
		{500, "No cluster leader", "", Failure{Kind: Unreachable}, sources.Unreachable},
		{400, "Failed to create boolean expression evaluator", "", Failure{Kind: Refused}, sources.Unreachable},
		{200, "[{", "", Failure{Kind: Unreachable}, sources.Unreachable},
	} {
		server.answer = func(response http.ResponseWriter) {
			if a.retryAfter != "" {
				response.Header().Set("Retry-After", a.retryAfter)
			}
			response.WriteHeader(a.status)
			_, _ = io.WriteString(response, a.body)
		}
		err := read(t, c)
		require.Equal(t, a.want, Classify(err), "%d %s", a.status, a.body)
		require.Equal(t, a.state, Classify(err).State())
	}
}

func TestClassifyErrors(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, lis.Close())
	require.Equal(t, Unreachable, Classify(read(t, client(t, "consul://"+lis.Addr().String(), Settings{}))).Kind, "no server listens")
	require.Equal(t, Unreachable, Classify(fmt.Errorf("get: %w", context.DeadlineExceeded)).Kind)
	require.Equal(t, Canceled, Classify(fmt.Errorf("get: %w", context.Canceled)).Kind)
	require.Equal(t, Unreachable, Classify(errors.New("x509: expired")).Kind)
	require.Equal(t, Success, Classify(nil).Kind)
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"3":                             3 * time.Second,
		"-3":                            0,
		"60":                            time.Minute,
		"3600":                          time.Minute,
		"9223372036854775807":           time.Minute,
		"Mon, 04 May 2026 05:02:01 GMT": time.Minute,
		"Mon, 04 May 2026 03:02:11 GMT": 10 * time.Second,
		"Mon, 04 May 2026 03:00:00 GMT": 0,
		"soon":                          0,
	} {
		require.Equal(t, want, retryAfter(value, now), value)
	}
}

func TestNextIndex(t *testing.T) {
	for _, c := range []struct{ index, got, want uint64 }{{0, 7, 7}, {7, 9, 9}, {7, 7, 7}, {7, 3, 0}, {0, 0, 1}, {7, 0, 0}} {
		require.Equal(t, c.want, NextIndex(c.index, c.got), c)
	}
}

func TestSecrets_NotShown(t *testing.T) {
	const hidden = "s3cr3t"
	token := secret.New(hidden)
	require.Equal(t, hidden, token.Reveal())
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "token", token)
	text, err := json.Marshal(struct{ T secret.Text }{token})
	require.NoError(t, err)
	for _, shown := range []string{log.String(), string(text), fmt.Sprintf("%v %+v %#v %s %q %x", token, token, token, token, token, token)} {
		require.NotContains(t, shown, hidden)
		require.Contains(t, shown, "secret")
	}
	inside := tokens{fixed: token}
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", inside, inside, inside), hidden)
	require.Empty(t, secret.Text{}.String())
}

func TestPulse(t *testing.T) {
	server, address := plain(t)
	c := client(t, address, Settings{})
	for _, a := range []struct {
		leader, contact string
		want            Pulse
	}{
		{"true", "0", Pulse{KnownLeader: true}},
		{"false", "6961", Pulse{LastContact: 6961 * time.Millisecond}},
		{"true", "12000", Pulse{KnownLeader: true, LastContact: 12 * time.Second}},
	} {
		server.answer = func(response http.ResponseWriter) {
			response.Header().Set("X-Consul-Index", "7")
			response.Header().Set("X-Consul-KnownLeader", a.leader)
			response.Header().Set("X-Consul-LastContact", a.contact)
			_, _ = io.WriteString(response, "[]")
		}
		got, err := c.Pulse(t.Context(), "dc2")
		require.NoError(t, err)
		require.Equal(t, a.want, got)
		require.Equal(t, "dc=dc2&stale=", server.request.URL.RawQuery)
	}
}
