package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const dialTimeout = 10 * time.Second

// config returns what client-go says of the cluster: it reads the kubeconfig, or takes what a Pod has.
func (c cluster) config() (*rest.Config, error) {
	if c.url != "" {
		transport, err := c.transport()
		if err != nil {
			return nil, err
		}
		return &rest.Config{Host: c.url, Transport: transport, BearerTokenFile: c.tokenFile}, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if c.kubeconfig != "" {
		rules = &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.kubeconfig}
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.context})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	if config.ExecProvider != nil {
		config.ExecProvider.StdinUnavailable = true // nobody is there to answer
	}
	return config, nil
}

// transport makes connections whose certificates are read anew for each.
func (c cluster) transport() (http.RoundTripper, error) {
	secure, err := c.tls.Dialer()
	if err != nil {
		return nil, fmt.Errorf("tlsSettings: %w", err)
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true}
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		config, err := secure(host)
		if err != nil {
			return nil, fmt.Errorf("tlsSettings: %w", err)
		}
		config.NextProtos = []string{"h2", "http/1.1"}
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
	}
	return utilnet.SetTransportDefaults(t), nil // with it, HTTP/2 finds out that a connection is dead
}

// connect makes a client of the cluster. It does not connect yet.
func (c cluster) connect() (*api, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "tributary"
	config.Timeout = 0 // each request has its own
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the server's address: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", base.Host, err)
	}
	own := *client                                                                                    // it may be the one of net/http
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // nobody else gets the token
	return &api{client: &own, base: strings.TrimSuffix(base.String(), "/")}, nil
}
