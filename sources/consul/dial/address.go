package dial

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Address is the address of a Consul, with the defaults of queries.
type Address struct {
	Host      string // host:port, or the path of a unix socket
	Unix      bool   // Host is a socket
	Secure    bool   // the address asks for TLS; the settings can do so, too
	Prefix    string // precedes every path, for a Consul behind a reverse proxy; "/…" or empty
	Path      string // path in the address, without its leading slash
	dc        string
	namespace string
	partition string
}

// credentials matches a user and password in an address.
var credentials = regexp.MustCompile(`^([^/]*://)?[^/]*@`)

// Parse reads an address: "SCHEME://host:port/path" or "SCHEME+https://host:port/path". Without host:port, as in
// "SCHEME:///path", CONSUL_HTTP_ADDR counts, in all forms that the official client takes, or else localhost:8500. A
// query can name dc, ns and partition, as in Consul's own HTTP API.
func Parse(scheme, address string) (Address, error) {
	parsed, err := parse(scheme, address)
	if err != nil {
		return parsed, fmt.Errorf("address: %q: %w", credentials.ReplaceAllString(address, "${1}<secret>@"), err)
	}
	return parsed, nil
}

func parse(scheme, address string) (parsed Address, err error) {
	before, rest, ok := strings.Cut(address, "://")
	if ok {
		before, parsed.Secure = strings.CutSuffix(before, "+https")
	}
	if !ok || before != scheme {
		return parsed, fmt.Errorf("want %s://host:port or %s+https://host:port", scheme, scheme)
	}
	if strings.Contains(rest, "#") {
		return parsed, errors.New("an address has no fragment; write # as %23")
	}
	rest, query, _ := strings.Cut(rest, "?")
	host, path, _ := strings.Cut(rest, "/")
	if parsed.Path, err = url.PathUnescape(path); err != nil {
		return parsed, err
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return parsed, err
	}
	for name := range values {
		switch value := values.Get(name); name {
		case "dc":
			parsed.dc = value
		case "ns":
			parsed.namespace = value
		case "partition":
			parsed.partition = value
		default: // to ignore it would hide a mistake
			return parsed, fmt.Errorf("unknown parameter %q; known: dc, ns, partition", name)
		}
	}
	if host == "" {
		if err = parsed.fromEnvironment(cmp.Or(os.Getenv(addrVariable), "localhost:8500")); err != nil {
			err = fmt.Errorf("%s: %w", addrVariable, err)
		}
		return parsed, err
	}
	parsed.Host = host
	return parsed, checkHostPort(host)
}

// addrVariable is the variable of the official client for the address.
const addrVariable = "CONSUL_HTTP_ADDR"

// fromEnvironment parses the value of the variable as the official client does.
func (a *Address) fromEnvironment(value string) error {
	scheme, rest, ok := strings.Cut(value, "://")
	if !ok {
		scheme = "http"
		rest = value
	}
	switch scheme {
	case "unix":
		a.Host = rest
		a.Unix = true
		if a.Secure {
			return errors.New("it is a unix socket, which has no +https")
		}
		return nil
	case "https":
		a.Secure = true
	case "http": // the address may still ask for TLS, as with the official client
	default:
		return fmt.Errorf("want http, https or unix, got %q", scheme)
	}
	host, prefix, _ := strings.Cut(rest, "/")
	a.Host = host
	if prefix != "" {
		a.Prefix = "/" + strings.TrimSuffix(prefix, "/")
	}
	return checkHostPort(host)
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

// String names the Consul in messages.
func (a Address) String() string {
	text := a.Host
	if a.Unix {
		text = "unix://" + text
	}
	text += a.Prefix
	for _, part := range [][2]string{{"dc", a.dc}, {"ns", a.namespace}, {"partition", a.partition}} {
		if part[1] != "" {
			text = strings.Join([]string{text, part[0], part[1]}, " ")
		}
	}
	return text
}
