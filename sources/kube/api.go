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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tributary/adsc"
	addresses "tributary/internal/address"
	"tributary/internal/body"
	"tributary/sources"
)

// Scheme is that of addresses of clusters.
const Scheme = "k8s"

// cluster says where a cluster is, and how to log in: by a kubeconfig, the usual one if it has no name, or at the url of the API server.
type cluster struct {
	kubeconfig, context string
	url, tokenFile      string
	tls                 *adsc.TLS // of the url
}

// parseAddress reads an address.
func parseAddress(address string, s Settings) (c cluster, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != Scheme || u.Opaque != "" || u.Fragment != "" {
		const want = "k8s://, k8s:///path/to/kubeconfig?context=NAME or k8s://host:6443"
		return c, fmt.Errorf("address: want %s, got %q", want, addresses.Shown(address))
	}
	for name, values := range u.Query() {
		if name != "context" || len(values) != 1 || values[0] == "" {
			return c, fmt.Errorf("address: the parameter %s is not known here, or not given once; want context=NAME", name)
		}
	}
	const hosts = "for addresses such as k8s://host:6443; a kubeconfig has its own"
	isFile := strings.Trim(u.Host, ".") == ""
	c = cluster{context: u.Query().Get("context"), tls: s.TLS, tokenFile: s.TokenFile}
	switch {
	case u.User != nil:
		return c, errors.New("address: it has no user; name a file with a token with tokenFile, or a kubeconfig")
	case isFile && c.tls != nil:
		return c, errors.New("tlsSettings: they are " + hosts)
	case isFile && c.tokenFile != "":
		return c, errors.New("tokenFile: it is " + hosts)
	case isFile:
		c.kubeconfig = strings.TrimSuffix(filepath.Join(u.Host, u.Path), "/")
		return c, nil
	case c.context != "":
		return c, errors.New("address: the parameter context is for a kubeconfig; a path to one begins with a third slash")
	case c.tls == nil:
		c.tls = &adsc.TLS{Mode: adsc.TLSSimple}
	}
	if err := c.tls.Check(); err != nil {
		return c, fmt.Errorf("tlsSettings: %w", err)
	}
	if !c.tls.Secure() && c.tokenFile != "" {
		return c, errors.New("tokenFile: it needs tlsSettings, since a token is not sent in plaintext")
	}
	u.Scheme = map[bool]string{false: "http", true: "https"}[c.tls.Secure()]
	c.url = u.String()
	return c, nil
}

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

// api speaks to an API server.
type api struct {
	client *http.Client
	base   string
}

// connect makes a client of the cluster. It does not connect yet.
func (c cluster) connect() (*api, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	config.UserAgent, config.Timeout = "tributary", 0 // each request has its own
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

// close ends connections that are not in use. There may be no client.
func (a *api) close() {
	if a != nil {
		utilnet.CloseIdleConnectionsFor(a.client.Transport)
	}
}

const (
	askTimeout = time.Minute // as the server has it
	maxAnswer  = 256 << 20   // bytes, such as of a page of a list
	maxError   = 64 << 10    // bytes

	// accept asks /apis for all that the server has in one answer, as Kubernetes 1.26 and newer give it. Nothing else knows the first two.
	accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)

// statusError is an answer that is an error: text is a Status, if it comes from an API server. It may ask for a time to wait, in seconds.
func statusError(code, wait int, text []byte) error {
	var s metav1.Status
	_ = json.Unmarshal(text, &s)         // else the code says enough
	s.Code = cmp.Or(int32(code), s.Code) //nolint:gosec // a status of HTTP
	if s.Details == nil {
		s.Details = new(metav1.StatusDetails)
	}
	s.Details.RetryAfterSeconds = max(s.Details.RetryAfterSeconds, int32(min(wait, int(maxWait.Seconds())))) //nolint:gosec // in bounds
	reason := cmp.Or(string(s.Reason), http.StatusText(int(s.Code)))
	s.Message = strings.TrimSuffix(fmt.Sprintf("%d %s: %s", s.Code, reason, s.Message), ": ")
	return &apierrors.StatusError{ErrStatus: s}
}

// stateOf is how a source is that gets the error.
func stateOf(err error) sources.State {
	if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
		return sources.Denied
	}
	return sources.Unreachable
}

// codeOf returns the status of an answer that is an error; 0 if there is no answer.
func codeOf(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return int(status.Status().Code)
}

// isExpired reports whether what is behind a resource version is no longer known.
func isExpired(err error) bool { return apierrors.IsGone(err) || apierrors.IsResourceExpired(err) }

// do sends a request, a POST if it has content. The caller closes the body of the answer, whose status is 200 or 201.
func (a *api) do(ctx context.Context, path string, query url.Values, content string) (*http.Response, error) {
	method, address := http.MethodGet, strings.TrimSuffix(a.base+path+"?"+query.Encode(), "?")
	if content != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(content))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{"Accept": {accept}, "Content-Type": {"application/json"}}
	res, err := a.client.Do(req)
	if err != nil || res.StatusCode == http.StatusOK || res.StatusCode == http.StatusCreated {
		return res, err
	}
	defer res.Body.Close() //nolint:errcheck // it is read
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxError))
	wait, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	return nil, statusError(res.StatusCode, wait, text)
}

// ask reads an answer that is one value.
func (a *api) ask(ctx context.Context, path string, query url.Values, content string, to any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	res, err := a.do(ctx, path, query, content)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it is read
	text, err := body.Read(res.Body, maxAnswer)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	return err
}

// page is one of a list.
type page struct {
	Kind     string
	Metadata metav1.ListMeta
	Items    []json.RawMessage
}

func (a *api) page(ctx context.Context, path string, query url.Values) (p page, version uint64, err error) {
	err = a.ask(ctx, path, query, "", &p)
	if err == nil && !strings.HasSuffix(p.Kind, "List") {
		err = fmt.Errorf("the answer is no list, but of kind %q", p.Kind)
	}
	if err == nil {
		version, err = versionOf(p.Metadata.ResourceVersion)
	}
	return p, version, err
}

// versionOf reads a resource version.
func versionOf(text string) (uint64, error) {
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil || version == 0 {
		return 0, fmt.Errorf("the resource version is %q, want a number", text)
	}
	return version, nil
}

// lookAt returns in which version the server has kinds: of those that we understand, the first that it names.
func (a *api) lookAt(ctx context.Context, kinds []*kind) (map[*kind]string, error) {
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
	if err == nil && served.Kind != "APIGroupDiscoveryList" { // which is no proof that there is nothing, such as the answer of a proxy
		err = fmt.Errorf("the answer for /apis is of kind %q, want APIGroupDiscoveryList", served.Kind)
	}
	versions := make(map[*kind]string)
	for _, k := range kinds {
		if k.group == "" {
			versions[k] = k.versions[0] // Kubernetes' own
		}
		for _, group := range served.Items {
			for _, v := range group.Versions {
				has := group.Metadata.Name == k.group && slices.Contains(v.Resources, struct{ Resource string }{k.plural})
				if has && versions[k] == "" && slices.Contains(k.versions, v.Version) {
					versions[k] = v.Version
				}
			}
		}
	}
	return versions, err
}

// event is one of a watch.
type event struct {
	Type   string
	Object json.RawMessage
}

// meta is what the source needs to know of every object.
type meta struct {
	Namespace, Name string
	ResourceVersion string
	Labels          map[string]string

	apiVersion string // of the object; empty if it does not say
	version    uint64
}

func (m meta) key() string { return m.Namespace + "/" + m.Name }

// metaOf reads the metadata of an object.
func metaOf(object json.RawMessage) (meta, error) {
	var o struct {
		APIVersion string
		Metadata   meta
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return meta{}, fmt.Errorf("read an object: %w", err)
	}
	m := o.Metadata
	version, err := versionOf(m.ResourceVersion)
	if err != nil {
		return m, fmt.Errorf("read %s: %w", m.key(), err)
	}
	m.apiVersion, m.version = o.APIVersion, version
	return m, nil
}
