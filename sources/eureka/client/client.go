// Package client reads the servers of a Eureka.
package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
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

// The schemes of addresses of a Eureka.
const (
	Scheme       = "eureka"
	SecureScheme = "eureka+https"
)

const (
	defaultPort = "8761"
	defaultPath = "/eureka"
)

// Address has the servers of a Eureka: eureka://[user:password@]host:8761,host:8761/eureka?backup=host:8761. Preferred
// servers come first. Its path has a slash in front and none behind, or is empty.
type Address struct {
	address.Address

	Secure bool // the address asks for TLS; the settings can do so, too
}

// ParseAddress reads an address.
func ParseAddress(text string) (Address, error) {
	scheme := Scheme
	if strings.HasPrefix(text, SecureScheme+"://") {
		scheme = SecureScheme
	}
	parsed, err := address.Parse(scheme, "host:"+defaultPort+defaultPath, defaultPort, text)
	if err != nil {
		return Address{}, err
	}
	for name := range parsed.Params {
		if name != "backup" {
			return Address{}, fmt.Errorf("address: unknown parameter %q; known: backup", name)
		}
	}
	parsed.Path = strings.TrimRight((&url.URL{Path: cmp.Or(parsed.Path, defaultPath)}).EscapedPath(), "/")
	if strings.HasSuffix(parsed.Path, "/apps") || strings.Contains(parsed.Path, "/apps/") {
		const message = "address: the path is that of the API, such as %s; /apps, which is below it, is added"
		return Address{}, fmt.Errorf(message, defaultPath)
	}
	return Address{parsed, scheme == SecureScheme}, nil
}

// TLS returns the TLS configuration for a host. The client calls it for each request, since certificates change. Nil:
// no TLS.
type TLS func(host string) (*tls.Config, error)

// ErrDenied is the error of a server that refuses the credentials.
var ErrDenied = errors.New("the server refuses us")

// Bounds of one request.
const (
	maxBody       = 64 << 20 // after decompression
	dialTimeout   = 5 * time.Second
	headerTimeout = 10 * time.Second
	totalTimeout  = 30 * time.Second
)

// Client reads servers. It is safe for concurrent use.
type Client struct {
	address         Address
	credentialsFile string
	secure          TLS
}

// New returns a client. It reads credentialsFile, if there is one, for each request.
func New(servers Address, credentialsFile string, secure TLS) *Client {
	return &Client{servers, credentialsFile, secure}
}

// Servers returns the addresses of the servers, preferred ones first.
func (c *Client) Servers() []string { return c.address.Servers }

// Sum is the checksum of an answer's text.
type Sum [sha256.Size]byte

// Reply is an answer of a server.
type Reply struct {
	*wire.Answer // nil if the text has the sum in the request

	Sum Sum
}

// Listing reads all applications. It does not decode the text with the sum previous.
func (c *Client) Listing(ctx context.Context, server string, previous Sum) (*Reply, error) {
	return c.get(ctx, server, "/apps", previous)
}

// Changes reads the changes of the last minutes, as Listing does. Not every server offers them.
func (c *Client) Changes(ctx context.Context, server string, previous Sum) (*Reply, error) {
	return c.get(ctx, server, "/apps/delta", previous)
}

func (c *Client) get(ctx context.Context, server, path string, previous Sum) (*Reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server+c.address.Path+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*Reply, error) { return nil, fmt.Errorf("GET %s: %w", request.URL, err) }
	transport := &http.Transport{
		DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		ResponseHeaderTimeout: headerTimeout, MaxResponseHeaderBytes: 64 << 10,
	}
	if c.secure != nil {
		request.URL.Scheme = "https"
		if transport.TLSClientConfig, err = c.secure(request.URL.Hostname()); err != nil {
			return fail(err)
		}
	}
	user, password, err := c.credentials()
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if user != "" {
		request.SetBasicAuth(user, password.Reveal())
	}
	// A redirect leads to a login page, not to a Eureka.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := (&http.Client{Transport: transport, Timeout: totalTimeout, CheckRedirect: stay}).Do(request)
	if err != nil {
		return nil, address.Hint(err, c.secure != nil) // names the URL
	}
	intake.Bound(response)      //nolint:bodyclose // it is closed below
	defer response.Body.Close() //nolint:errcheck // it was read
	if err := checkStatus(response); err != nil {
		return fail(err)
	}
	text, err := intake.Read(response.Body, maxBody)
	if err != nil {
		return fail(err)
	}
	reply := &Reply{Sum: sha256.Sum256(text)}
	if reply.Sum == previous {
		return reply, nil
	}
	if reply.Answer, err = wire.Decode(text); err != nil {
		return fail(err)
	}
	return reply, nil
}

// checkStatus returns an error unless the response is an answer.
func checkStatus(response *http.Response) error {
	switch code := response.StatusCode; {
	case code == http.StatusOK:
		return nil
	case code == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s", ErrDenied, response.Status)
	case code == http.StatusForbidden:
		// Netflix' server answers so for its first five minutes if it found no peer.
		return fmt.Errorf("%w, or has just started: %s", ErrDenied, response.Status)
	case code/100 == 3:
		return fmt.Errorf("no answer of a Eureka: %s, to %q", response.Status, response.Header.Get("Location"))
	}
	return fmt.Errorf("no answer of a Eureka: %s", response.Status)
}

// CheckCredentials checks the credentials file, if there is one.
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
	user, word, complete := strings.Cut(strings.TrimSpace(string(text)), ":")
	if !complete || user == "" || strings.ContainsAny(word, "\r\n") {
		return "", secret.Text{}, fmt.Errorf("credentialsFile: %s: want one line of user:password", c.credentialsFile)
	}
	return user, secret.New(word), nil
}
