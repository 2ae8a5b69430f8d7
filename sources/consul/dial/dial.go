// Package dial makes clients of Consul: the official one, for all that it can be told by the environment, on a transport
// that carries many blocking queries, reads tokens and certificates anew, and keeps what Consul says about being asked
// too much.
package dial

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/adsc"
)

// Settings are what an address does not tell.
type Settings struct {
	// TokenFile is a file with an ACL token, read anew for each query. It goes before CONSUL_HTTP_TOKEN_FILE and
	// CONSUL_HTTP_TOKEN.
	TokenFile string
	// TLS stands for all variables about TLS. SIMPLE and MUTUAL make the connection https.
	TLS *adsc.TLS
}

// Doubts are what is hardly meant of settings, though it can be done: each begins with the key or variable at fault. A file with a token
// may come later.
func (s Settings) Doubts() []string {
	if _, err := newTokens(s.TokenFile).current(); err != nil {
		return []string{err.Error() + ": nothing is read until it is there"}
	}
	return nil
}

// Client is the client of one Consul, to be shared by all who ask it.
type Client struct {
	*api.Client
	Address Address
	// Secure says that queries go over https, where Consul speaks HTTP/2 and does not limit how many wait at the same time.
	Secure bool

	transport *transport
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
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	base := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns:        maxIdle,
		MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,
		// A connection that died in silence is noticed although all that it carries is waiting.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	env := api.DefaultNonPooledConfig()
	config := &api.Config{
		Address: a.Host, Scheme: "http", PathPrefix: a.Prefix, HttpAuth: env.HttpAuth, Token: placeholder, Datacenter: a.dc,
		Namespace: cmp.Or(a.namespace, env.Namespace), Partition: cmp.Or(a.partition, env.Partition),
	}
	switch {
	case a.Unix:
		config.Address, base.Proxy = "localhost", nil
		base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", a.Host)
		}
	case sec != nil:
		config.Scheme = "https"
		base.DialTLSContext = sec.dialer(dialer)
		// Connections through a proxy are not made by DialTLSContext.
		proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: a.Host}})
		if err == nil && proxy != nil {
			base.TLSClientConfig, err = sec.config()
		}
		if err != nil {
			return nil, err
		}
	}
	t := &transport{base: base, tokens: newTokens(s.TokenFile), secure: sec != nil, longest: longestAnswer}
	// Consul redirects what it cannot express to something else, which is not the answer to what was asked.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	config.HttpClient = &http.Client{Transport: t, CheckRedirect: stay}
	consul, err := api.NewClient(config)
	if err != nil {
		return nil, err
	}
	return &Client{
		Client: consul, Address: a, Secure: sec != nil, transport: t, namespace: config.Namespace, partition: config.Partition,
	}, nil
}

// Close closes the connections that nobody uses. The client can be used again.
func (c *Client) Close() { c.transport.base.CloseIdleConnections() }
