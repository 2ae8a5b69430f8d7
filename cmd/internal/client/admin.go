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

// Admin is a client of one admin server.
type Admin struct {
	Address string    // host:port, https://host:port or unix:///PATH
	From    string    // the flag, variable or file that sets the address, for messages; or empty
	Unknown error     // returned by each request if the address cannot be determined
	TLS     *adsc.TLS // for https; nil for the defaults
	Secure  bool      // a host:port alone speaks TLS, too
	// TokenFile has a token, which the client sends over https only; empty for none.
	TokenFile string
	Timeout   time.Duration // of one request
}

const maxAnswer = 1 << 30

// Get returns the page at path, and decodes it as JSON into target.
func (c *Admin) Get(ctx context.Context, path string, query url.Values, target any) (page []byte, err error) {
	if page, err = c.request(ctx, http.MethodGet, path, query); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(page, target); err != nil {
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
	return c.request(ctx, http.MethodGet, path, query)
}

// Post sends a POST request, and returns the answer.
func (c *Admin) Post(ctx context.Context, path string, query url.Values) (string, error) {
	text, err := c.request(ctx, http.MethodPost, path, query)
	return string(text), err
}

// Name returns the address and its origin, for messages.
func (c *Admin) Name() string {
	if c.From == "" {
		return c.Address
	}
	return c.Address + " (" + c.From + ")"
}

func (c *Admin) request(ctx context.Context, method, path string, query url.Values) ([]byte, error) {
	if c.Unknown != nil {
		return nil, c.Unknown
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no answer within %s", c.Timeout))
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true} // without a proxy, since the server is near
	target := url.URL{Scheme: "http", Host: c.Address, Path: path, RawQuery: query.Encode()}
	if socket, isSocket := strings.CutPrefix(c.Address, "unix://"); isSocket {
		target.Host = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	} else if server, isSocket := strings.CutPrefix(c.Address, "xds://"); isSocket {
		return nil, fmt.Errorf("xds://%s is an address for xDS: give that of the admin server, host:port, with --admin",
			server)
	} else {
		var secure bool
		if target.Host, secure = c.hostPort(); target.Host == "" {
			return nil, &AddressError{c.Address, c.From}
		}
		if secure {
			target.Scheme = "https"
			var err error
			if transport.TLSClientConfig, err = c.tlsConfig(target.Host); err != nil {
				return nil, fmt.Errorf("admin server %s: %w", c.Name(), err)
			}
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return nil, &AddressError{c.Address, c.From}
	}
	if c.TokenFile != "" && target.Scheme == "https" {
		token, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, c.explainError(ctx, err)
	}
	defer func() { _ = response.Body.Close() }() // everything was read
	text, err := intake.Read(response.Body, maxAnswer)
	if err != nil {
		return nil, c.explainError(ctx, err)
	}
	message := strings.TrimSpace(string(text))
	switch {
	case response.StatusCode == http.StatusOK:
		return text, nil
	case response.StatusCode == http.StatusBadRequest && words.ConnectionError(c.Address, message) != "": // it wants TLS
		return nil, fmt.Errorf("admin server %s: %s", c.Name(), words.ConnectionError(c.Address, message))
	case response.StatusCode == http.StatusNotFound && message == "404 page not found": // of package net/http
		return nil,
			fmt.Errorf("%s has no %s: it is no admin server of tributary, or an older one, or its pages are switched off "+
				"(admin.debug)",
				c.Name(), path)
	case strings.HasPrefix(message, "<") || len(message) > maxMessage: // no message of tributary
		return nil, fmt.Errorf("%s answers %s with %s, and not as the admin server of a tributary does", c.Name(),
			response.Status,
			cmp.Or(response.Header.Get("Content-Type"), "some text"))
	default:
		return nil, &StatusError{c.Name(), response.StatusCode, message}
	}
}

// maxMessage limits the bytes of a message of an admin server.
const maxMessage = 4 << 10

// hostPort returns the host:port of the address, empty if it has none, and reports whether to use TLS.
func (c *Admin) hostPort() (host string, secure bool) {
	host, secure = strings.CutPrefix(c.Address, "https://")
	if !secure {
		host = strings.TrimPrefix(c.Address, "http://")
		secure = c.Secure && host == c.Address
	}
	host = strings.TrimSuffix(host, "/")
	if _, port, err := net.SplitHostPort(host); err != nil {
		return "", secure
	} else if number, err := strconv.Atoi(port); err != nil || number < 1 || number > 65535 {
		return "", secure
	}
	return host, secure
}

// AddressError is an invalid address of an admin server. From is its origin, and empty for --admin.
type AddressError struct{ Address, From string }

func (e *AddressError) Error() string {
	want := "host:port, https://host:port or unix:///PATH"
	if strings.HasSuffix(e.Address, ":0") {
		want = "the port that it listens on, which its log has: give it with --admin"
	}
	return fmt.Sprintf("%s %s: want %s", cmp.Or(e.From, "--admin"), e.Address, want)
}

// StatusError is an error that the server answered.
type StatusError struct {
	Address string
	Code    int // HTTP status
	Message string
}

func (e *StatusError) Error() string { return e.Address + ": " + e.Message }

func (c *Admin) tlsConfig(address string) (*tls.Config, error) {
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

func (c *Admin) explainError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no server listens on %s; give the admin address of tributary with --admin", c.Name())
	case ctx.Err() != nil:
		return fmt.Errorf("admin server %s: %w", c.Name(), context.Cause(ctx))
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	if isOtherProtocol(err) {
		return fmt.Errorf("%s does not speak HTTP/1.1: it may be the port for xDS (listen.xds); give the admin address of "+
			"tributary with --admin",
			c.Name())
	}
	if means := words.ConnectionError(strings.TrimPrefix(c.Address, "https://"), err.Error()); means != "" {
		return fmt.Errorf("admin server %s: %s", c.Name(), means)
	}
	return fmt.Errorf("admin server %s: %w", c.Name(), err)
}

// isOtherProtocol reports whether err is package net/http's for HTTP/2 frames, after the request or before it.
func isOtherProtocol(err error) bool {
	return strings.Contains(err.Error(), "malformed HTTP response") ||
		strings.Contains(err.Error(), "readLoopPeekFailLocked: %!w(<nil>)")
}
