package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tributary/adsc"
	addresses "tributary/internal/address"
	"tributary/internal/intake"
	"tributary/sources"
)

// Scheme is the scheme of addresses of clusters.
const Scheme = "k8s"

// cluster is the address and the login of a cluster: a kubeconfig or the url of the API server. Without both, the usual
// kubeconfig counts.
type cluster struct {
	kubeconfig, context string
	url, tokenFile      string
	tls                 *adsc.TLS // for the url
}

// parseAddress parses an address.
func parseAddress(address string, settings Settings) (c cluster, err error) {
	parsed, err := url.Parse(address)
	isFile := err == nil && strings.Trim(parsed.Host, ".") == ""
	if err != nil || parsed.Scheme != Scheme || parsed.Opaque != "" || parsed.Fragment != "" || parsed.User != nil ||
		parsed.RawQuery != "" && !(isFile && len(parsed.Query()) == 1 && len(parsed.Query()["context"]) == 1) {
		const want = "k8s://, k8s:///path/to/kubeconfig?context=NAME or k8s://host:6443, without a user and other parameters"
		return c, fmt.Errorf("address: want %s, got %q", want, addresses.Shown(address))
	}
	c = cluster{
		context: parsed.Query().Get("context"), tls: cmp.Or(settings.TLS, &adsc.TLS{Mode: adsc.TLSSimple}),
		tokenFile: settings.TokenFile,
	}
	switch {
	case isFile && (settings.TLS != nil || settings.TokenFile != ""):
		return c, errors.New("address: with tlsSettings or tokenFile, want one such as k8s://host:6443; a kubeconfig has " +
			"its own")
	case isFile:
		c.kubeconfig = strings.TrimSuffix(filepath.Join(parsed.Host, parsed.Path), "/")
		return c, nil
	case !c.tls.Secure() && settings.TokenFile != "":
		return c, errors.New("tokenFile: it needs tlsSettings, since a token is not sent in plaintext")
	}
	parsed.Scheme = map[bool]string{false: "http", true: "https"}[c.tls.Secure()]
	c.url = parsed.String()
	if err := c.tls.Check(); err != nil {
		return c, fmt.Errorf("tlsSettings: %w", err)
	}
	return c, nil
}

// api is a client of an API server.
type api struct {
	client *http.Client
	base   string

	// decode is held while an answer is decoded: large lists of many kinds then take one processor, and other sources
	// have the rest.
	decode sync.Mutex
}

// restConfig reads the kubeconfig, or uses the configuration of a Pod.
func (c cluster) restConfig() (config *rest.Config, err error) {
	config = &rest.Config{Host: c.url, BearerTokenFile: c.tokenFile}
	step := "tlsSettings"
	if c.url != "" {
		transport := new(http.Transport)
		if c.tls.Secure() {
			transport.TLSClientConfig, err = c.tls.Config("")
		}
		config.Transport = utilnet.SetTransportDefaults(transport) // HTTP/2 notices dead connections
	} else {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = c.kubeconfig // the usual files, if empty
		overrides := &clientcmd.ConfigOverrides{CurrentContext: c.context}
		step = "read the kubeconfig"
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", step, err)
	}
	config.UserAgent = "tributary"
	return config, nil
}

// SkipsVerification reports whether a kubeconfig has insecure-skip-tls-verify: true.
func (s *Source) SkipsVerification() bool {
	config, err := s.cluster.restConfig()
	return err == nil && config.Insecure
}

// connect makes a client of the cluster. It does not connect yet.
func (c cluster) connect() (*api, error) {
	config, err := c.restConfig()
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	transport, wrong := rest.TransportFor(config)
	if err = cmp.Or(err, wrong); err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", config.Host, err)
	}
	if config.ExecProvider != nil {
		transport = newPluginTransport(transport, config.ExecProvider.Command)
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // only the server gets the token
	client := &http.Client{Transport: transport, CheckRedirect: stay}
	return &api{client: client, base: strings.TrimSuffix(base.String(), "/")}, nil
}

// close ends idle connections. The receiver may be nil.
func (a *api) close() {
	if a != nil {
		utilnet.CloseIdleConnectionsFor(a.client.Transport)
	}
}

const (
	askTimeout = time.Minute // the server's own limit
	maxAnswer  = 256 << 20   // bytes, as in a page of a list
	maxError   = 64 << 10    // bytes

	// accept requests all kinds of the server in one answer of /apis, which exists since Kubernetes 1.26. Other paths do
	// not have the first two media types.
	accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)

// refusal is an error that the API server answers: a Status of the API.
type refusal struct {
	Code            int
	Reason, Message string
	RetryAfter      int `json:"-"` // seconds; 0 for none
}

// Error implements error.
func (r *refusal) Error() string {
	reason := cmp.Or(r.Reason, http.StatusText(r.Code))
	return strings.TrimSuffix(fmt.Sprintf("%d %s: %s", r.Code, reason, r.Message), ": ")
}

// isExpired reports whether the server no longer has the history since a resource version.
func (r *refusal) isExpired() bool { return r.Code == http.StatusGone || r.Reason == "Expired" }

// refused returns the refusal in an error; the zero value if it has none.
func refused(err error) *refusal {
	r, _ := errors.AsType[*refusal](err)
	return cmp.Or(r, new(refusal))
}

// stateOf returns the state of a source after an error.
func stateOf(err error) sources.State {
	if code := refused(err).Code; code == http.StatusUnauthorized || code == http.StatusForbidden {
		return sources.Denied
	}
	return sources.Unreachable
}

// do sends a request, a POST if it has content. The answer has status 200 or 201. The caller closes its body.
func (a *api) do(ctx context.Context, path string, query url.Values, content string) (*http.Response, error) {
	address := strings.TrimSuffix(a.base+path+"?"+query.Encode(), "?")
	method := http.MethodGet
	if content != "" {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{"Accept": {accept}, "Content-Type": {"application/json"}}
	response, err := a.client.Do(request)
	if err == nil {
		intake.Bound(response)
	}
	if err != nil || response.StatusCode == http.StatusOK || response.StatusCode == http.StatusCreated {
		return response, err
	}
	defer response.Body.Close() //nolint:errcheck // it is read
	refusal := new(refusal)
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxError))
	_ = json.Unmarshal(text, refusal)                                        // without it, the code is enough
	refusal.RetryAfter, _ = strconv.Atoi(response.Header.Get("Retry-After")) // API servers send it beside the Status
	refusal.Code = response.StatusCode
	return nil, refusal
}

// ask sends a request, and decodes the answer into target.
func (a *api) ask(ctx context.Context, path string, query url.Values, content string, target any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	response, err := a.do(ctx, path, query, content)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it is read
	text, err := intake.Read(response.Body, maxAnswer)
	if err == nil {
		a.decode.Lock()
		defer a.decode.Unlock()
		err = json.Unmarshal(text, target)
	}
	return err
}

// page is a page of a list.
type page struct {
	Kind     string
	Items    []json.RawMessage
	Metadata struct {
		Version  uint64 `json:"resourceVersion,string"`
		Continue string
		// Remaining is the number of objects after the page, unless a selector is in use.
		Remaining int `json:"remainingItemCount"`
	}
}

func (a *api) page(ctx context.Context, path string, query url.Values) (page page, err error) {
	err = a.ask(ctx, path, query, "", &page)
	if err == nil && (!strings.HasSuffix(page.Kind, "List") || page.Metadata.Version == 0) {
		err = fmt.Errorf("the answer is no list, but of kind %q", page.Kind)
	}
	return page, err
}

// discover returns the versions of kinds at the server: the first one in its answer that the source reads. A missing
// kind has no version.
func (a *api) discover(ctx context.Context, kinds []*kind) (map[*kind]string, error) {
	var served struct {
		Kind  string
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version   string
				Resources []struct{ Resource string }
			}
		}
	}
	err := a.ask(ctx, "/apis", nil, "", &served)
	if err == nil && served.Kind != "APIGroupDiscoveryList" { // perhaps the answer of a proxy
		err = fmt.Errorf("the answer for /apis is of kind %q, want APIGroupDiscoveryList", served.Kind)
	}
	versions := make(map[*kind]string)
	for _, kind := range kinds {
		if kind.group == "" {
			versions[kind] = kind.versions[0] // each Kubernetes has it
		}
		for _, group := range served.Items {
			for _, version := range group.Versions {
				isServed := group.Metadata.Name == kind.group &&
					slices.Contains(version.Resources, struct{ Resource string }{kind.plural})
				if isServed && versions[kind] == "" && slices.Contains(kind.versions, version.Version) {
					versions[kind] = version.Version
				}
			}
		}
	}
	return versions, err
}

// meta is the metadata of an object that the source needs.
type meta struct {
	Namespace, Name string
	Version         uint64 `json:"resourceVersion,string"`
	Labels          map[string]string

	key string // namespace/name
}
