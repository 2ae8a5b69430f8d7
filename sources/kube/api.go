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
	askTimeout = time.Minute      // as the server has it
	watchGrace = 10 * time.Second // for the server to end a watch
	maxAnswer  = 256 << 20        // bytes, such as of a page of a list
	maxEvent   = 64 << 20         // bytes; etcd takes objects of some 1.5 MiB
	maxError   = 64 << 10         // bytes
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
	req.Header = http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}}
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

// lookAt returns in which version the server has what streams read, by resource: of those that we understand, the first that it names.
func lookAt(ctx context.Context, client *api, streams []*stream) (map[string]string, error) {
	versions, groups := make(map[string]string), make(map[string][]*stream)
	for _, s := range streams {
		if s.fixed {
			versions[s.resource()] = s.versions[0]
		} else {
			groups[s.group] = append(groups[s.group], s)
		}
	}
	for group, all := range groups {
		var served metav1.APIGroup
		err := client.describe(ctx, "/apis/"+group, "APIGroup", &served, &served.TypeMeta)
		for i, v := range append([]metav1.GroupVersionForDiscovery{served.PreferredVersion}, served.Versions...) {
			var list metav1.APIResourceList
			if err == nil && (i == 0 || v != served.PreferredVersion) {
				err = client.describe(ctx, "/apis/"+group+"/"+v.Version, "APIResourceList", &list, &list.TypeMeta)
			}
			for _, s := range all {
				has := slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == s.plural })
				if has && versions[s.resource()] == "" && slices.Contains(s.versions, v.Version) {
					versions[s.resource()] = v.Version
				}
			}
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return versions, nil
}

// describe asks for what the server has. An answer of another kind is no proof that there is nothing, such as one of a proxy.
func (a *api) describe(ctx context.Context, path, kind string, to any, is *metav1.TypeMeta) error {
	err := a.ask(ctx, path, nil, "", to)
	if err == nil && is.Kind != kind {
		err = fmt.Errorf("the answer for %s is no %s, but of kind %q", path, kind, is.Kind)
	}
	return err
}

// event is one of a watch.
type event struct {
	Type   string
	Object json.RawMessage
}

// watch hands the events after a resource version to take until the server ends it after about a time, take returns an error, or the server
// does not end it in time. It calls opened once the server has accepted it.
func (a *api) watch(
	ctx context.Context, path, selector string, after uint64, lasts time.Duration, opened func(), take func(event) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, lasts+watchGrace)
	defer cancel()
	res, err := a.do(ctx, path, url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {strconv.FormatUint(after, 10)},
		"timeoutSeconds": {strconv.Itoa(max(1, int(lasts.Seconds())))}, "labelSelector": {selector},
	}, "")
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it is read
	opened()
	from := &io.LimitedReader{R: res.Body}
	for events := json.NewDecoder(from); ; {
		var e event
		from.N = maxEvent
		switch err := events.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the watch: %w", err)
		case e.Type == "ERROR":
			return statusError(0, 0, e.Object)
		}
		if err := take(e); err != nil {
			return err
		}
	}
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
