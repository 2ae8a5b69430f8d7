// Package dial makes clients of Consul: the official one, for all that it can be told by the environment, on a transport
// that carries many blocking queries, reads tokens and certificates anew, and keeps what Consul says about being asked
// too much.
package dial

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/adsc"
	"tributary/internal/address"
)

// Settings are what an address does not tell.
type Settings struct {
	// TokenFile is a file with an ACL token, read anew for each query. It goes before CONSUL_HTTP_TOKEN_FILE and
	// CONSUL_HTTP_TOKEN.
	TokenFile string
	// TLS stands for all variables about TLS. SIMPLE and MUTUAL make the connection https.
	TLS *adsc.TLS
}

// Client is the client of one Consul, to be shared by all who ask it.
type Client struct {
	*api.Client
	Address Address
	// Secure says that queries go over https, where Consul speaks HTTP/2 and does not limit how many wait at the same time.
	Secure bool

	base *http.Transport
	http *http.Client
	root *url.URL // of the API
	// namespace and partition are those of queries that name none.
	namespace, partition string
}

const (
	dialTimeout = 10 * time.Second
	// Blocking queries end at about the same time after a change. All of their connections are kept for the next ones.
	maxIdle = 1024
)

// New makes a client. Nothing is asked, and no files are read, until it is used. Errors begin with the key or variable at
// fault.
func New(a Address, s Settings) (*Client, error) {
	sec, err := secured(a, s.TLS)
	if err != nil {
		return nil, err
	}
	dial := (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	base := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns:        maxIdle,
		MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,
		// A connection that died in silence is noticed although all that it carries is waiting.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	scheme, host := "http", a.Host
	switch {
	case a.Unix:
		base.Proxy = nil
		base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", a.Host) }
		host = "localhost"
	case sec != nil:
		scheme = "https"
		base.DialTLSContext = sec.dialer(dial)
		if base.TLSClientConfig, err = behindProxy(host, sec); err != nil {
			return nil, err
		}
	}
	namespace, partition := cmp.Or(a.namespace, os.Getenv("CONSUL_NAMESPACE")), cmp.Or(a.partition, os.Getenv("CONSUL_PARTITION"))
	client := &http.Client{
		Transport: &transport{base: base, tokens: newTokens(s.TokenFile), secure: sec != nil, longest: longestAnswer},
		// Consul redirects what it cannot express to something else, which is not the answer to what was asked.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	consul, err := api.NewClient(&api.Config{
		Address:    host,
		Scheme:     scheme,
		PathPrefix: a.Prefix,
		HttpClient: client,
		HttpAuth:   basicAuth(),
		Datacenter: a.dc,
		Namespace:  namespace,
		Partition:  partition,
		Token:      placeholder,
	})
	if err != nil {
		return nil, err
	}
	return &Client{
		Client: consul, Address: a, Secure: scheme == "https", base: base, http: client,
		root: &url.URL{Scheme: scheme, Host: host, Path: a.Prefix}, namespace: namespace, partition: partition,
	}, nil
}

// behindProxy returns the TLS configuration for connections through a proxy, which are not made by DialTLSContext.
func behindProxy(host string, sec *security) (*tls.Config, error) {
	req := &http.Request{URL: &url.URL{Scheme: "https", Host: host}}
	if proxy, err := http.ProxyFromEnvironment(req); err != nil || proxy == nil {
		return nil, err
	}
	return sec.config()
}

// Close closes the connections that nobody uses. The client can be used again.
func (c *Client) Close() { c.base.CloseIdleConnections() }

func basicAuth() *api.HttpBasicAuth {
	value := os.Getenv("CONSUL_HTTP_AUTH")
	if value == "" {
		return nil
	}
	user, password, _ := strings.Cut(value, ":")
	return &api.HttpBasicAuth{Username: user, Password: password}
}

// placeholder stands where the official client puts the token that it read at its start. Given one, it reads none; and
// requests that have it get the token of the moment.
const placeholder = "token-of-the-moment"

const tokenHeader = "X-Consul-Token" //nolint:gosec // the name, not a token

// transport gives each request its token, and turns the answers that ask for patience into errors that say how much.
type transport struct {
	base    *http.Transport
	tokens  tokens
	secure  bool
	longest int // in bytes, of an answer
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.Header.Get(tokenHeader) {
	case nobody:
		req = req.Clone(req.Context())
		req.Header.Del(tokenHeader)
	case placeholder:
		token, err := t.tokens.current()
		if err != nil {
			if req.Body != nil {
				_ = req.Body.Close() // as every RoundTripper must
			}
			return nil, err
		}
		req = req.Clone(req.Context())
		req.Header.Del(tokenHeader)
		if value := token.Reveal(); value != "" {
			req.Header.Set(tokenHeader, value)
		}
	}
	noteSent(req)
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		if t.secure { // else a connection that ends says nothing of TLS: blocking queries end like that whenever Consul does
			err = address.Hint(err, true)
		}
		return nil, err
	}
	bound(resp, t.longest)
	if resp.StatusCode == http.StatusBadRequest && !t.secure {
		return wantsTLS(resp)
	}
	after := resp.Header.Get("Retry-After")
	if resp.StatusCode != http.StatusTooManyRequests && (resp.StatusCode != http.StatusServiceUnavailable || after == "") {
		return resp, nil
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read an answer of status %d: %w", resp.StatusCode, err)
	}
	return nil, &LimitError{RetryAfter: retryAfter(after, time.Now()), body: strings.TrimSpace(string(body))}
}

// wantsTLS returns the answer of a server that was asked something wrong, or an error if that was no more than to be asked without TLS.
func wantsTLS(resp *http.Response) (*http.Response, error) {
	defer resp.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read an answer of status %d: %w", resp.StatusCode, err)
	}
	if text := strings.TrimSpace(string(body)); strings.Contains(text, "HTTP request to an HTTPS server") {
		return nil, fmt.Errorf("%s (it speaks TLS alone: write +https behind the scheme of the address, or see tlsSettings)", text)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}
