package client

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tributary/internal/secret"
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

// Address is where the servers of a Eureka are: eureka://[user:password@]host:8761,host:8761/eureka?backup=host:8761.
type Address struct {
	Servers  []string // host:port, those to be preferred first
	Path     string   // of the API, with a slash in front and none behind; or empty
	Secure   bool     // the address asks for TLS; the settings can do so, too
	User     string
	Password secret.Text
}

// ParseAddress reads an address.
func ParseAddress(address string) (Address, error) {
	a, err := parseAddress(address)
	if err != nil {
		return Address{}, fmt.Errorf("address: %w", err)
	}
	return a, nil
}

func parseAddress(address string) (a Address, err error) {
	scheme, rest, _ := strings.Cut(address, "://")
	if scheme != Scheme && scheme != SecureScheme {
		return a, fmt.Errorf("want %s://host:%s%s or %s://host:%s%s", Scheme, defaultPort, defaultPath, SecureScheme, defaultPort, defaultPath)
	}
	a.Secure = scheme == SecureScheme
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, hasPath := strings.Cut(rest, "/")
	if strings.Contains(rest+query, "#") {
		return a, errors.New("an address has no fragment; write # as %23")
	}
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		if a.User, a.Password, err = credentials(hosts[:at]); err != nil {
			return a, err
		}
		hosts = hosts[at+1:]
	}
	a.Path = defaultPath
	if hasPath {
		a.Path = "/" + path
	}
	a.Path = strings.TrimRight(a.Path, "/")
	if _, err := url.PathUnescape(a.Path); err != nil {
		return a, fmt.Errorf("path: %w", err)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return a, errors.New("what is behind ? cannot be read")
	}
	for _, list := range append([]string{hosts}, values["backup"]...) {
		for server := range strings.SplitSeq(list, ",") {
			if server, err = withPort(strings.TrimSpace(server)); err != nil {
				return a, err
			}
			if !slices.Contains(a.Servers, server) {
				a.Servers = append(a.Servers, server)
			}
		}
	}
	delete(values, "backup")
	for name := range values {
		return a, fmt.Errorf("unknown parameter %q; known: backup", name)
	}
	return a, nil
}

// credentials reads user:password, as they stand in an address.
func credentials(text string) (user string, password secret.Text, err error) {
	name, word, _ := strings.Cut(text, ":")
	user, err = url.PathUnescape(name)
	if err == nil {
		word, err = url.PathUnescape(word)
	}
	if err != nil || user == "" {
		return "", secret.Text{}, errors.New("the user and password cannot be read: want user:password@, with % as %25")
	}
	return user, secret.New(word), nil
}

// withPort adds the usual port to a server that names none.
func withPort(server string) (string, error) {
	if host, port, err := net.SplitHostPort(server); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
			return "", fmt.Errorf("want host:port, got %q", server)
		}
		return server, nil
	}
	host := strings.TrimSuffix(strings.TrimPrefix(server, "["), "]")
	if host == "" || strings.ContainsAny(host, "[]/ ") || strings.Count(host, ":") == 1 {
		return "", fmt.Errorf("want host:port, got %q", server)
	}
	return net.JoinHostPort(host, defaultPort), nil
}
