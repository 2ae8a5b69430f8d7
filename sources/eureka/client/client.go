// Package client asks the servers of a Eureka.
package client

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"tributary/internal/address"
	"tributary/internal/intake"
	"tributary/internal/secret"
	"tributary/sources/eureka/wire"
)

// TLS gives what a connection to a host needs; nil is a connection without TLS. It is asked each time, since certificates change.
type TLS func(host string) (*tls.Config, error)

// The errors that matter to who asks.
var (
	ErrDenied    = errors.New("the server refuses us")
	ErrNoChanges = errors.New("the server does not tell changes")
	errAbsent    = errors.New("404 Not Found")
)

// Bounds of one request.
const (
	maxBody     = 64 << 20 // without compression
	dialTimeout = 5 * time.Second
	waitTimeout = 10 * time.Second // for an answer to begin
	timeout     = 30 * time.Second // for all of it
)

// Client asks servers. It is safe for concurrent use.
type Client struct {
	address         Address
	credentialsFile string
	scheme          string
	http            *http.Client
}

// New returns a client. The file, if it has a name, has user:password, and is read anew for each request.
func New(a Address, credentialsFile string, secure TLS) *Client {
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{
		DialContext: dialer.DialContext, ResponseHeaderTimeout: waitTimeout, MaxIdleConnsPerHost: 4, IdleConnTimeout: 5 * time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
	}
	c := &Client{address: a, credentialsFile: credentialsFile, scheme: "http", http: &http.Client{
		Transport: transport, Timeout: timeout,
		// Where it leads is not a server of the Eureka, but a page to log in at, most likely.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if secure != nil {
		c.scheme = "https"
		transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			config, err := secure(host)
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
		}
	}
	return c
}

// Servers are those that can be asked.
func (c *Client) Servers() []string { return c.address.Servers }

// Close ends connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Reply is an answer of a server.
type Reply struct {
	*wire.Answer
	Sum   [sha256.Size]byte // of what was sent
	Ahead time.Duration     // by which the clock of the server is ahead of ours
}

// All asks a server for all applications.
func (c *Client) All(ctx context.Context, server string) (*Reply, error) {
	return c.ask(ctx, server, "/apps", wire.Decode)
}

// Changes asks a server for what has changed in the last minutes. ErrNoChanges says that it does not tell, for whatever reason.
func (c *Client) Changes(ctx context.Context, server string) (*Reply, error) {
	return c.ask(ctx, server, changes, wire.Decode)
}

// One asks a server for one instance. The answer is not one of its cache, and has none if the server does not know that.
func (c *Client) One(ctx context.Context, server string, key wire.Key) (*Reply, error) {
	path := "/apps/" + url.PathEscape(key.App) + "/" + url.PathEscape(key.ID)
	r, err := c.ask(ctx, server, path, func(body []byte) (*wire.Answer, error) { return wire.DecodeOne(key.App, body) })
	if errors.Is(err, errAbsent) {
		return &Reply{Answer: &wire.Answer{}}, nil
	}
	return r, err
}

// changes is the path of what has changed.
const changes = "/apps/delta"

func (c *Client) ask(ctx context.Context, server, path string, decode func([]byte) (*wire.Answer, error)) (*Reply, error) {
	where := c.scheme + "://" + server + c.address.Path + path
	fail := func(err error) (*Reply, error) { return nil, fmt.Errorf("GET %s: %w", where, err) }
	user, password, err := c.credentials()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where, http.NoBody)
	if err != nil {
		return fail(err)
	}
	request.Header.Set("Accept", "application/json")
	if user != "" {
		request.SetBasicAuth(user, password.Reveal())
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, address.Hint(err, c.scheme == "https") // which says what was asked
	}
	intake.Bound(response)      //nolint:bodyclose // it is closed below
	defer response.Body.Close() //nolint:errcheck // it was read
	received := time.Now()
	if err := refusal(response, path == changes); err != nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection can be used again
		return fail(&StatusError{response.StatusCode, err})
	}
	text, err := intake.Read(response.Body, maxBody)
	if err != nil {
		return fail(err)
	}
	r := &Reply{Sum: sha256.Sum256(text)}
	if r.Answer, err = decode(text); err != nil {
		return fail(err)
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		r.Ahead = date.Sub(received.Truncate(time.Second))
	}
	return r, nil
}

// StatusError is a response whose status says that it is no answer to what was asked.
type StatusError struct {
	Status int
	Err    error
}

func (e *StatusError) Error() string { return e.Err.Error() }

// Unwrap returns what that means.
func (e *StatusError) Unwrap() error { return e.Err }

// Refused reports whether a server was reached and will not answer what it was asked, now or later.
func Refused(err error) bool {
	var e *StatusError
	return errors.As(err, &e) && (e.Status/100 == 3 || e.Status/100 == 4 && e.Status != http.StatusRequestTimeout &&
		e.Status != http.StatusTooManyRequests)
}

// refusal returns what the status of a response means; nil if it is an answer.
func refusal(response *http.Response, ofChanges bool) error {
	switch status := response.StatusCode; {
	case status == http.StatusOK:
		return nil
	case ofChanges && (status == http.StatusForbidden || status == http.StatusNotFound || status == http.StatusMethodNotAllowed ||
		status == http.StatusNotImplemented):
		return fmt.Errorf("%w: %s", ErrNoChanges, response.Status)
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s", ErrDenied, response.Status)
	case status == http.StatusForbidden:
		// A server of Netflix' that found no peer to learn from answers so for its first five minutes.
		return fmt.Errorf("%w, or has just started: %s", ErrDenied, response.Status)
	case status == http.StatusNotFound:
		return fmt.Errorf("no answer of a Eureka: %w", errAbsent)
	case status/100 == 3:
		return fmt.Errorf("no answer of a Eureka: %s, to %q", response.Status, response.Header.Get("Location"))
	}
	return fmt.Errorf("no answer of a Eureka: %s", response.Status)
}

// CheckCredentials reads the file with the user and password, if there is one.
func (c *Client) CheckCredentials() error {
	_, _, err := c.credentials()
	return err
}

func (c *Client) credentials() (user string, password secret.Text, err error) {
	if c.credentialsFile == "" {
		return c.address.User, c.address.Password, nil
	}
	text, err := os.ReadFile(c.credentialsFile)
	if err != nil {
		return "", secret.Text{}, fmt.Errorf("credentialsFile: %w", err)
	}
	user, word, found := strings.Cut(strings.TrimSpace(string(text)), ":")
	if !found || user == "" || strings.ContainsAny(word, "\r\n") {
		return "", secret.Text{}, fmt.Errorf("credentialsFile: %s: want one line of user:password", c.credentialsFile)
	}
	return user, secret.New(word), nil
}
