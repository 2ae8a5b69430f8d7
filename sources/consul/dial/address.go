package dial

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// Where the official client looks if it is told nothing.
const defaultAddr = "localhost:8500"

// Address is where Consul is and what of it is meant.
type Address struct {
	Host      string // host:port, or the path of a unix socket
	Unix      bool   // Host is a socket
	Secure    bool   // the address asks for TLS; the settings can do so, too
	Prefix    string // of every path, for a Consul behind a reverse proxy; "/…" or empty
	Path      string // what stands behind the host in the address, without the slash in front
	variable  string // where Host came from, if not from the address
	dc        string
	namespace string
	partition string
}

// Parse reads an address: "SCHEME://host:port/path" or "SCHEME+https://host:port/path". Without host:port, as in
// "SCHEME:///path", it is CONSUL_HTTP_ADDR, in all forms that the official client takes, and without that localhost:8500.
// A query can name dc, ns and partition, as in Consul's own HTTP API.
func Parse(scheme, address string) (Address, error) {
	a, err := parse(scheme, address)
	if err != nil {
		return a, fmt.Errorf("address: %q: %w", withoutUser(address), err)
	}
	return a, nil
}

// withoutUser returns an address for messages: without the user and password that some people write there.
func withoutUser(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		scheme, rest = "", address
	} else {
		scheme += "://"
	}
	authority, _, _ := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		rest = "<secret>" + rest[i:]
	}
	return scheme + rest
}

func parse(scheme, address string) (a Address, err error) {
	before, rest, ok := strings.Cut(address, "://")
	if ok {
		before, a.Secure = strings.CutSuffix(before, "+https")
	}
	if !ok || before != scheme {
		return a, fmt.Errorf("want %s://host:port or %s+https://host:port", scheme, scheme)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if strings.Contains(rest+query, "#") {
		return a, errors.New("an address has no fragment; write # as %23")
	}
	host, path, _ := strings.Cut(rest, "/")
	if a.Path, err = url.PathUnescape(path); err != nil {
		return a, err
	}
	if err := a.parseQuery(query); err != nil {
		return a, err
	}
	if host == "" {
		return a, a.fromEnvironment()
	}
	a.Host = host
	return a, checkHostPort(host)
}

// parseQuery takes what says which part of Consul is meant. All else is refused: it would be silently without effect.
func (a *Address) parseQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	for name, to := range map[string]*string{"dc": &a.dc, "ns": &a.namespace, "partition": &a.partition} {
		*to = values.Get(name)
		delete(values, name)
	}
	for name := range values {
		return fmt.Errorf("unknown parameter %q; known: dc, ns, partition", name)
	}
	return nil
}

// fromEnvironment takes the host from where the official client does.
func (a *Address) fromEnvironment() error {
	value := os.Getenv("CONSUL_HTTP_ADDR")
	if value == "" {
		a.Host = defaultAddr
		return nil
	}
	a.variable = "CONSUL_HTTP_ADDR"
	scheme, rest, ok := strings.Cut(value, "://")
	if !ok {
		scheme, rest = "http", value
	}
	switch scheme {
	case "unix":
		a.Host, a.Unix = rest, true
		if a.Secure {
			return fmt.Errorf("%s is a unix socket, which +https is not for", a.variable)
		}
		return nil
	case "https":
		a.Secure = true
	case "http": // the address may ask for TLS all the same, as with the official client
	default:
		return fmt.Errorf("%s: want http, https or unix, got %q", a.variable, scheme)
	}
	host, prefix, found := strings.Cut(rest, "/")
	if a.Host = host; found && prefix != "" {
		a.Prefix = "/" + strings.TrimSuffix(prefix, "/")
	}
	if err := checkHostPort(host); err != nil {
		return fmt.Errorf("%s: %w", a.variable, err)
	}
	return nil
}

func checkHostPort(address string) error {
	host, port, err := net.SplitHostPort(address)
	if strings.Contains(address, "@") {
		return errors.New("a user and password stand in CONSUL_HTTP_AUTH, not in the address")
	}
	if err != nil || host == "" {
		return fmt.Errorf("want host:port, got %q", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("want a port from 1 to 65535, got %q", port)
	}
	return nil
}

// String is how messages name the Consul that is meant.
func (a Address) String() string {
	s := a.Host
	if a.Unix {
		s = "unix://" + s
	}
	s += a.Prefix
	for _, part := range []struct{ name, value string }{{"dc", a.dc}, {"ns", a.namespace}, {"partition", a.partition}} {
		if part.value != "" {
			s += " " + part.name + " " + part.value
		}
	}
	return s
}
