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
func (a *Admin) Get(ctx context.Context, path string, query url.Values, target any) (page []byte, err error) {
	if page, err = a.request(ctx, http.MethodGet, path, query); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(page, target); err != nil {
		return nil, fmt.Errorf("%s%s does not answer as a tributary does: is it the admin server of one?", a.Address, path)
	}
	return page, nil
}

// Page returns the page at path, which may have a query.
func (a *Admin) Page(ctx context.Context, path string) ([]byte, error) {
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return nil, err
	}
	return a.request(ctx, http.MethodGet, path, query)
}

// Post sends a POST request, and returns the answer.
func (a *Admin) Post(ctx context.Context, path string, query url.Values) (string, error) {
	text, err := a.request(ctx, http.MethodPost, path, query)
	return string(text), err
}

// Name returns the address and its origin, for messages.
func (a *Admin) Name() string {
	if a.From == "" {
		return a.Address
	}
	return a.Address + " (" + a.From + ")"
}

func (a *Admin) request(ctx context.Context, method, path string, query url.Values) ([]byte, error) {
	if a.Unknown != nil {
		return nil, a.Unknown
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.Timeout, fmt.Errorf("no answer within %s", a.Timeout))
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true} // without a proxy, since the server is near
	target := url.URL{Scheme: "http", Host: a.Address, Path: path, RawQuery: query.Encode()}
	if socket, isSocket := strings.CutPrefix(a.Address, "unix://"); isSocket {
		target.Host = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	} else if server, isSocket := strings.CutPrefix(a.Address, "xds://"); isSocket {
		return nil, fmt.Errorf("xds://%s is an address for xDS: give that of the admin server, host:port, with --admin",
			server)
	} else {
		var secure bool
		if target.Host, secure = a.hostPort(); target.Host == "" {
			return nil, &AddressError{a.Address, a.From}
		}
		if secure {
			target.Scheme = "https"
			var err error
			if transport.TLSClientConfig, err = a.tlsConfig(target.Host); err != nil {
				return nil, fmt.Errorf("admin server %s: %w", a.Name(), err)
			}
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return nil, &AddressError{a.Address, a.From}
	}
	if a.TokenFile != "" && target.Scheme == "https" {
		token, err := os.ReadFile(a.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, a.explainError(ctx, err)
	}
	defer func() { _ = response.Body.Close() }() // everything was read
	text, err := intake.Read(response.Body, maxAnswer)
	if err != nil {
		return nil, a.explainError(ctx, err)
	}
	message := strings.TrimSpace(string(text))
	switch {
	case response.StatusCode == http.StatusOK:
		return text, nil
	case response.StatusCode == http.StatusBadRequest && words.ConnectionError(a.Address, message) != "": // it wants TLS
		return nil, fmt.Errorf("admin server %s: %s", a.Name(), words.ConnectionError(a.Address, message))
	case response.StatusCode == http.StatusNotFound && message == "404 page not found": // of package net/http
		return nil,
			fmt.Errorf("%s has no %s: it is no admin server of tributary, or an older one, or its pages are switched off "+
				"(admin.debug)",
				a.Name(), path)
	case strings.HasPrefix(message, "<") || len(message) > maxMessage: // no message of tributary
		return nil, fmt.Errorf("%s answers %s with %s, and not as the admin server of a tributary does", a.Name(),
			response.Status,
			cmp.Or(response.Header.Get("Content-Type"), "some text"))
	default:
		return nil, &StatusError{a.Name(), response.StatusCode, message}
	}
}

// maxMessage limits the bytes of a message of an admin server.
const maxMessage = 4 << 10

// hostPort returns the host:port of the address, empty if it has none, and reports whether to use TLS.
func (a *Admin) hostPort() (host string, secure bool) {
	host, secure = strings.CutPrefix(a.Address, "https://")
	if !secure {
		host = strings.TrimPrefix(a.Address, "http://")
		secure = a.Secure && host == a.Address
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

func (a *Admin) tlsConfig(address string) (*tls.Config, error) {
	settings := a.TLS
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

func (a *Admin) explainError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no server listens on %s; give the admin address of tributary with --admin", a.Name())
	case ctx.Err() != nil:
		return fmt.Errorf("admin server %s: %w", a.Name(), context.Cause(ctx))
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	if isOtherProtocol(err) {
		return fmt.Errorf("%s does not speak HTTP/1.1: it may be the port for xDS (listen.xds); give the admin address of "+
			"tributary with --admin",
			a.Name())
	}
	if means := words.ConnectionError(strings.TrimPrefix(a.Address, "https://"), err.Error()); means != "" {
		return fmt.Errorf("admin server %s: %s", a.Name(), means)
	}
	return fmt.Errorf("admin server %s: %w", a.Name(), err)
}

// isOtherProtocol reports whether err is package net/http's for HTTP/2 frames, after the request or before it.
func isOtherProtocol(err error) bool {
	return strings.Contains(err.Error(), "malformed HTTP response") ||
		strings.Contains(err.Error(), "readLoopPeekFailLocked: %!w(<nil>)")
}
