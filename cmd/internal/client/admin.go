package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tributary/adsc"
	"tributary/internal/intake"
	"tributary/internal/words"
)

// Admin asks one server.
type Admin struct {
	Address string    // host:port, https://host:port or unix:///PATH
	From    string    // what names the address, for messages; or empty
	Unknown error     // why the address is not known, which is what each request then returns
	TLS     *adsc.TLS // for https; nil for the defaults
	Secure  bool      // a host:port alone speaks TLS, too
	// TokenFile has a token, which is shown over https alone; empty for none.
	TokenFile string
	Timeout   time.Duration // of one request
}

const maxAnswer = 1 << 30

// Get returns the page at path, and decodes it, as JSON, into v.
func (c *Admin) Get(ctx context.Context, path string, query url.Values, v any) (page []byte, err error) {
	if page, err = c.do(ctx, http.MethodGet, path, query); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(page, v); err != nil {
		return nil, fmt.Errorf("%s%s does not answer as a tributary does: is it the admin server of one?", c.Address, path)
	}
	return page, nil
}

// Page returns the page at path, which may have a query.
func (c *Admin) Page(ctx context.Context, path string) ([]byte, error) {
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return nil, err
	}
	return c.do(ctx, http.MethodGet, path, query)
}

// Post has the server do what path stands for, and returns what it says.
func (c *Admin) Post(ctx context.Context, path string, query url.Values) (string, error) {
	text, err := c.do(ctx, http.MethodPost, path, query)
	return string(text), err
}

// Name is the address of the server and what names it, for people.
func (c *Admin) Name() string {
	if c.From == "" {
		return c.Address
	}
	return c.Address + " (" + c.From + ")"
}

func (c *Admin) do(ctx context.Context, method, path string, query url.Values) ([]byte, error) {
	if c.Unknown != nil {
		return nil, c.Unknown
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no answer within %s", c.Timeout))
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true} // without a proxy: it is a neighbour
	target := url.URL{Scheme: "http", Host: c.Address, Path: path, RawQuery: query.Encode()}
	if socket, ok := strings.CutPrefix(c.Address, "unix://"); ok {
		target.Host = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	} else if server, ok := strings.CutPrefix(c.Address, "xds://"); ok {
		return nil, fmt.Errorf("xds://%s is an address for xDS: give that of the admin server, host:port, with --admin", server)
	} else {
		var secure bool
		if target.Host, secure = c.host(); target.Host == "" {
			return nil, &AddressError{c.Address, c.From}
		}
		if secure {
			target.Scheme = "https"
			var err error
			if transport.TLSClientConfig, err = c.secure(target.Host); err != nil {
				return nil, fmt.Errorf("admin server %s: %w", c.Name(), err)
			}
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return nil, &AddressError{c.Address, c.From}
	}
	if c.TokenFile != "" && target.Scheme == "https" {
		token, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // everything was read
	text, err := intake.Read(resp.Body, maxAnswer)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	said := strings.TrimSpace(string(text))
	switch {
	case resp.StatusCode == http.StatusOK:
		return text, nil
	case resp.StatusCode == http.StatusBadRequest && words.ConnectionError(c.Address, said) != "": // it wants TLS
		return nil, fmt.Errorf("admin server %s: %s", c.Name(), words.ConnectionError(c.Address, said))
	case resp.StatusCode == http.StatusNotFound && said == "404 page not found": // as package net/http says it
		return nil, fmt.Errorf("%s has no %s: it is no admin server of tributary, or an older one, or its pages are switched off (admin.debug)",
			c.Name(), path)
	case strings.HasPrefix(said, "<") || len(said) > maxSaid: // ours say what is wrong in words
		return nil, fmt.Errorf("%s answers %s with %s, and not as the admin server of a tributary does", c.Name(), resp.Status,
			cmp.Or(resp.Header.Get("Content-Type"), "some text"))
	default:
		return nil, &StatusError{c.Name(), resp.StatusCode, said}
	}
}

// maxSaid is how long the words of an admin server are at most, in bytes.
const maxSaid = 4 << 10

// host is the host:port of the address, empty if it has none, and whether TLS is spoken there.
func (c *Admin) host() (host string, secure bool) {
	host, secure = strings.CutPrefix(c.Address, "https://")
	if !secure {
		host = strings.TrimPrefix(c.Address, "http://")
		secure = c.Secure && host == c.Address
	}
	host = strings.TrimSuffix(host, "/")
	if _, port, err := net.SplitHostPort(host); err != nil {
		return "", secure
	} else if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", secure
	}
	return host, secure
}

// AddressError is an address at which there can be no admin server. From is what names it: --admin if it is empty.
type AddressError struct{ Address, From string }

func (e *AddressError) Error() string {
	want := "host:port, https://host:port or unix:///PATH"
	if strings.HasSuffix(e.Address, ":0") {
		want = "the port that it listens on, which its log has: give it with --admin"
	}
	return fmt.Sprintf("%s %s: want %s", cmp.Or(e.From, "--admin"), e.Address, want)
}

// StatusError is an answer that is an error.
type StatusError struct {
	Address string
	Code    int // of HTTP
	Said    string
}

func (e *StatusError) Error() string { return e.Address + ": " + e.Said }

func (c *Admin) secure(address string) (*tls.Config, error) {
	settings := c.TLS
	if settings == nil {
		settings = &adsc.TLS{Mode: adsc.TLSSimple}
	}
	if err := settings.Check(); err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return settings.Config(host)
}

func (c *Admin) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody listens on %s; give the admin address of tributary with --admin", c.Name())
	case ctx.Err() != nil:
		return fmt.Errorf("admin server %s: %w", c.Name(), context.Cause(ctx))
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	if speaksOtherwise(err) {
		return fmt.Errorf("%s does not speak HTTP/1.1: it may be the port for xDS (listen.xds); give the admin address of tributary with --admin",
			c.Name())
	}
	if means := words.ConnectionError(strings.TrimPrefix(c.Address, "https://"), err.Error()); means != "" {
		return fmt.Errorf("admin server %s: %s", c.Name(), means)
	}
	return fmt.Errorf("admin server %s: %w", c.Name(), err)
}

// speaksOtherwise says whether err is what package net/http makes of frames of HTTP/2: those that come after the request, or before it.
func speaksOtherwise(err error) bool {
	return strings.Contains(err.Error(), "malformed HTTP response") || strings.Contains(err.Error(), "readLoopPeekFailLocked: %!w(<nil>)")
}
