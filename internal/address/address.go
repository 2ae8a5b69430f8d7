// Package address reads the addresses of registries as Dubbo's users write them, and makes addresses fit to be shown.
package address

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Address is that of a registry: scheme://[user:password@]host:port[/path]?backup=host:port,host:port&more=parameters.
type Address struct {
	Servers        []string // host:port, each once
	User, Password string   // of the address, or its parameters username and password
	Path           string
	Params         url.Values
}

// Parse reads an address. Servers without a port have the usual one. An error shows form in place of what is wrong with the whole, and no password.
func Parse(scheme, form, port, text string) (a Address, err error) {
	u, err := url.Parse(text)
	if err != nil { // which may show a password
		return Address{}, fmt.Errorf("address: want %s://%s", scheme, form)
	}
	if u.Scheme != scheme || u.Host == "" {
		return Address{}, fmt.Errorf("address: want %s://%s, got %q", scheme, form, Shown(text))
	}
	a = Address{Path: u.Path, Params: u.Query()}
	for _, list := range append([]string{u.Host}, a.Params["backup"]...) {
		for server := range strings.SplitSeq(list, ",") {
			if server, err = withPort(strings.TrimSpace(server), port); err != nil {
				return Address{}, fmt.Errorf("address: %w", err)
			}
			if !slices.Contains(a.Servers, server) {
				a.Servers = append(a.Servers, server)
			}
		}
	}
	if u.User != nil {
		a.User = u.User.Username()
		a.Password, _ = u.User.Password()
	}
	if a.User == "" {
		a.User, a.Password = a.Params.Get("username"), a.Params.Get("password")
	}
	return a, nil
}

// withPort adds the usual port to a server that names none.
func withPort(server, usual string) (string, error) {
	if host, port, err := net.SplitHostPort(server); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
			return "", fmt.Errorf("want host:port, got %q", server)
		}
		return server, nil
	}
	host := strings.Trim(server, "[]")
	if host == "" {
		return "", fmt.Errorf("a server without a host")
	}
	return net.JoinHostPort(host, usual), nil
}

// secrets are the parameters that are not shown.
var secrets = []string{"username", "password", "token"}

// Shown returns an address of any scheme without what logs in, for people.
func Shown(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	rest, query, _ := strings.Cut(rest, "?")
	host, path, hasPath := strings.Cut(rest, "/")
	host = host[strings.LastIndexByte(host, '@')+1:]
	if hasPath {
		path = "/" + path
	}
	parameters := slices.DeleteFunc(strings.Split(query, "&"), func(p string) bool {
		name, _, _ := strings.Cut(p, "=")
		return name == "" || slices.Contains(secrets, strings.ToLower(name))
	})
	if len(parameters) > 0 {
		path += "?" + strings.Join(parameters, "&")
	}
	return scheme + "://" + host + path
}
