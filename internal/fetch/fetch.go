// Package fetch reads answers of registries over HTTP: with bounds on time and memory, and without redirects.
package fetch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"tributary/adsc"
	"tributary/internal/address"
	"tributary/internal/intake"
	"tributary/internal/secret"
)

// TLS returns the TLS configuration for a host. A client calls it for each request, since certificates change. Nil: no
// TLS.
type TLS func(host string) (*tls.Config, error)

// Bounds of one request. Clients have bounds of the whole.
const (
	dialTimeout   = 5 * time.Second
	headerTimeout = 10 * time.Second
	headerBytes   = 64 << 10
)

// Client sends requests to the servers of one registry. It is safe for concurrent use.
type Client struct {
	Servers []string // host:port
	Path    string   // in front of each path of Get; escaped
	TLS     TLS
	Account Account
	Timeout time.Duration // of a request and its answer
	Limit   int           // bytes of an answer, after decompression
}

// Settings are the settings of a connection. Zero values stand for the defaults.
type Settings struct {
	TLS *adsc.TLS
	// CredentialsFile has user:password. Default: the credentials in the address.
	CredentialsFile string
}

// New returns a client for the servers of an address, with usual bounds. An error begins with the key at fault.
func New(servers address.Address, settings Settings) (*Client, error) {
	secure, err := settings.TLS.ConfigFuncFor(servers.Secure)
	if err != nil {
		return nil, fmt.Errorf("tlsSettings: %w", err)
	}
	client := &Client{
		Servers: servers.Servers, Path: servers.Path, TLS: secure,
		Account: Account{User: servers.User, Password: servers.Password, File: settings.CredentialsFile},
		Timeout: 30 * time.Second, Limit: 64 << 20,
	}
	return client, client.Account.check()
}

// ErrDenied is the error of a server that refuses the credentials.
var ErrDenied = errors.New("the server refuses us")

// StatusError is the error of an answer with another status than 200. For 401 and 403 it is ErrDenied.
type StatusError struct {
	Code int

	text string
}

func (e *StatusError) Error() string { return e.text }

// Is implements the interface of package errors.
func (e *StatusError) Is(target error) bool { return target == ErrDenied && e.denied() }

func (e *StatusError) denied() bool {
	return e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden
}

func newStatusError(response *http.Response) *StatusError {
	failure := &StatusError{Code: response.StatusCode, text: response.Status}
	switch {
	case failure.denied():
		failure.text = ErrDenied.Error() + ": " + response.Status
	case failure.Code/100 == 3:
		failure.text = fmt.Sprintf("%s, to %q", response.Status, response.Header.Get("Location"))
	}
	return failure
}

// URL returns the URL of an escaped path of a server.
func (c *Client) URL(server, path string) string {
	if c.TLS != nil {
		return "https://" + server + path
	}
	return "http://" + server + path
}

// Get reads JSON of a server with the credentials of the account. See Do.
func (c *Client) Get(ctx context.Context, server, path string, decode func(text []byte) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL(server, c.Path+path), http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	if err := c.Account.authorize(request); err != nil {
		return err
	}
	return c.Do(request, decode)
}

// Do sends a request, and calls decode with the text of an answer with status 200. Until decode returns, the answer and
// its decoded form count as memory of the source. It follows no redirect: one leads to a login page, or takes a
// password to another host. Errors name the URL.
func (c *Client) Do(request *http.Request, decode func(text []byte) error) (err error) {
	fail := func(err error) error { return fmt.Errorf("%s %s: %w", request.Method, request.URL, err) }
	transport := &http.Transport{
		DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		ResponseHeaderTimeout: headerTimeout, MaxResponseHeaderBytes: headerBytes,
	}
	if c.TLS != nil {
		if transport.TLSClientConfig, err = c.TLS(request.URL.Hostname()); err != nil {
			return fail(err)
		}
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := (&http.Client{Transport: transport, Timeout: c.Timeout, CheckRedirect: stay}).Do(request)
	if err != nil {
		return address.Hint(err, c.TLS != nil) // names the URL
	}
	intake.Bound(response)      //nolint:bodyclose // it is closed below
	defer response.Body.Close() //nolint:errcheck // it was read
	if response.StatusCode != http.StatusOK {
		return fail(newStatusError(response))
	}
	text, err := intake.Read(response.Body, c.Limit)
	if err == nil {
		err = decode(text)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// Account is a user with a password. The zero value sends no credentials.
type Account struct {
	User     string
	Password secret.Text
	File     string // contains user:password instead, and is read for each request
}

func (a Account) check() error {
	if a.File != "" && a.User != "" {
		return errors.New("credentialsFile: the address has a user, too")
	}
	_, err := a.read()
	return err
}

func (a Account) read() (Account, error) {
	if a.File == "" {
		return a, nil
	}
	text, err := os.ReadFile(a.File)
	if err != nil {
		return Account{}, fmt.Errorf("credentialsFile: %w", err)
	}
	user, password, complete := strings.Cut(strings.TrimSpace(string(text)), ":")
	if !complete || user == "" || strings.ContainsAny(password, "\r\n") {
		return Account{}, fmt.Errorf("credentialsFile: %s: want one line of user:password", a.File)
	}
	return Account{User: user, Password: secret.New(password)}, nil
}

func (a Account) authorize(request *http.Request) error {
	account, err := a.read()
	if err == nil && account.User != "" {
		request.SetBasicAuth(account.User, account.Password.Reveal())
	}
	return err
}
