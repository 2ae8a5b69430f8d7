package kube

import (
	"fmt"
	"net/http"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// config returns what client-go says of the cluster: it reads the kubeconfig, or takes what a Pod has.
func (c cluster) config() (*rest.Config, error) {
	if c.url != "" {
		transport := new(http.Transport)
		if c.tls.Secure() {
			var err error
			if transport.TLSClientConfig, err = c.tls.Config(""); err != nil {
				return nil, fmt.Errorf("tlsSettings: %w", err)
			}
		}
		// SetTransportDefaults has HTTP/2 find out that a connection is dead.
		return &rest.Config{Host: c.url, Transport: utilnet.SetTransportDefaults(transport), BearerTokenFile: c.tokenFile}, nil
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
