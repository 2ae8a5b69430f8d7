// Package dial makes clients of Consul. The official client reads the usual variables. Its transport is for many
// blocking queries, reads tokens and certificates again when they change, and keeps the Retry-After of Consul's rate
// limits.
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

// Settings are the settings in addition to an address.
type Settings struct {
	// TokenFile is a file with an ACL token, read for each query. It takes precedence over CONSUL_HTTP_TOKEN_FILE and
	// CONSUL_HTTP_TOKEN.
	TokenFile string
	// TLS replaces all variables about TLS. SIMPLE and MUTUAL make the connection https.
	TLS *adsc.TLS
}

// Doubts returns warnings about valid settings that are probably mistakes: each begins with the key or variable at
// fault. The file with the token may come later.
func (s Settings) Doubts() []string {
	if _, err := newTokens(s.TokenFile).current(); err != nil {
		return []string{err.Error() + ": nothing is read until it is there"}
	}
	return nil
}

// Client is a client of one Consul, safe for concurrent use.
type Client struct {
	*api.Client
	Address Address
	// Secure says that queries go over https, where Consul speaks HTTP/2 and does not limit the blocking queries.
	Secure bool

	transport *transport
	// namespace and partition are for queries that name none.
	namespace, partition string
}

const (
	dialTimeout = 10 * time.Second
	// Blocking queries end at about the same time after a change. All of their connections are kept for the next ones.
	maxIdle = 1024
)

// New makes a client. It sends no request and reads no file before its first use. Errors begin with the key or variable
// at fault.
func New(address Address, settings Settings) (*Client, error) {
	security, err := secured(address, settings.TLS)
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
		// Pings detect a dead connection on which all queries block.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	environment := api.DefaultNonPooledConfig()
	config := &api.Config{
		Address: address.Host, Scheme: "http", PathPrefix: address.Prefix, HttpAuth: environment.HttpAuth, Token: placeholder,
		Datacenter: address.dc,
		Namespace:  cmp.Or(address.namespace, environment.Namespace),
		Partition:  cmp.Or(address.partition, environment.Partition),
	}
	switch {
	case address.Unix:
		config.Address = "localhost"
		base.Proxy = nil
		base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", address.Host)
		}
	case security != nil:
		config.Scheme = "https"
		base.DialTLSContext = security.dialer(dialer)
		// Connections through a proxy are not made by DialTLSContext.
		proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: address.Host}})
		if err == nil && proxy != nil {
			base.TLSClientConfig, err = security.config()
		}
		if err != nil {
			return nil, err
		}
	}
	transport := &transport{
		base: base, tokens: newTokens(settings.TokenFile), secure: security != nil, longest: longestAnswer,
	}
	// Consul redirects inexpressible names to another path, with the answer to another query.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	config.HttpClient = &http.Client{Transport: transport, CheckRedirect: stay}
	consul, err := api.NewClient(config)
	if err != nil {
		return nil, err
	}
	return &Client{
		Client: consul, Address: address, Secure: security != nil, transport: transport,
		namespace: config.Namespace, partition: config.Partition,
	}, nil
}

// Close closes idle connections. The client remains usable.
func (c *Client) Close() { c.transport.base.CloseIdleConnections() }
