// Package address parses the addresses of registries in Dubbo's notation, removes secrets from addresses, and names the
// peers of connections.
package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"tributary/internal/secret"
)

// Address is that of a registry: scheme://[user:password@]host:port[/path]?backup=host:port,host:port&more=parameters.
type Address struct {
	Servers  []string // host:port, each once
	User     string   // of the address, or its parameter username
	Password secret.Text
	Path     string
	Params   url.Values // others
	Secure   bool       // it asks for TLS; see ParseHTTP
}

// Parse reads an address. Servers without a port have the usual one. An error about the whole shows form instead, and
// no password.
//
// A URL of Go has one server, and fewer literal characters in its password.
func Parse(scheme, form, port, text string) (address Address, err error) {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return Address{}, fmt.Errorf("address: want %s://%s", scheme, form)
	}
	rest, ok := strings.CutPrefix(text, scheme+"://")
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, hasPath := strings.Cut(rest, "/")
	switch {
	case !ok:
	case strings.ContainsRune(path, '@') || misplaced(query):
		// The text before it may be a part of a password, and is not shown.
		return Address{}, errors.New("address: there is an @ behind the first / or ?; in a user or password write / as " +
			"%2F and ? as %3F, in a " +
			"path @ as %40")
	case strings.ContainsRune(path, ','):
		return Address{}, fmt.Errorf("address: a path has no comma; servers stand together before it: "+
			"%s://host:port,host:port/%s", scheme,
			path[:strings.IndexByte(path, ',')])
	}
	if !ok || hosts == "" {
		return Address{}, fmt.Errorf("address: want %s://%s, got %q", scheme, form, Shown(text))
	}
	if address, err = parse(hosts, query, port); err != nil {
		return Address{}, fmt.Errorf("address: %w", err)
	}
	if hasPath {
		if address.Path, err = url.PathUnescape("/" + path); err != nil {
			return Address{}, fmt.Errorf("address: its path: %w", err)
		}
	}
	return address, nil
}

// misplaced reports whether a text before an @ was parsed as the name of a parameter.
func misplaced(query string) bool {
	for p := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(p, "="); strings.ContainsRune(name, '@') {
			return true
		}
	}
	return false
}

func parse(hosts, query, port string) (address Address, err error) {
	if strings.Contains(hosts+query, "#") {
		return address, errors.New("it has no fragment; write # as %23")
	}
	if address.Params, err = url.ParseQuery(query); err != nil {
		return address, errors.New("what is behind ? cannot be read: want name=value&name=value, with % as %25")
	}
	if index := strings.LastIndexByte(hosts, '@'); index >= 0 {
		// several with a password each, or one that is not escaped
		if first := strings.IndexByte(hosts, '@'); strings.Contains(hosts[first:index], ",") {
			return address, errors.New("a user and password stand once, before the first server; " +
				"in a password write @ as %40 and , as %2C")
		}
		if address.User, address.Password, err = credentials(hosts[:index]); err != nil {
			return address, err
		}
		hosts = hosts[index+1:]
	} else {
		address.User, address.Password = address.Params.Get("username"), secret.New(address.Params.Get("password"))
		if address.User != "" && !address.Params.Has("password") ||
			address.User == "" && address.Params.Get("password") != "" {
			return address, errors.New("want both parameters, username and password, or none")
		}
	}
	for _, name := range secrets {
		address.Params.Del(name)
	}
	for _, list := range append([]string{hosts}, address.Params["backup"]...) {
		for server := range strings.SplitSeq(list, ",") {
			if server, err = withPort(strings.TrimSpace(server), port); err != nil {
				return address, err
			}
			if !slices.Contains(address.Servers, server) {
				address.Servers = append(address.Servers, server)
			}
		}
	}
	return address, nil
}

// credentials parses user:password of an address.
func credentials(text string) (user string, password secret.Text, err error) {
	user, plain, hasPassword := strings.Cut(text, ":")
	if !hasPassword {
		return "", password, errors.New("the user has no password: want user:password@")
	}
	if user, err = url.PathUnescape(user); err == nil {
		plain, err = url.PathUnescape(plain)
	}
	if err != nil || user == "" {
		return "", password, errors.New("the user and password cannot be read: want user:password@, with % as %25")
	}
	return user, secret.New(plain), nil
}

// withPort adds the usual port to a server without one.
func withPort(server, usual string) (string, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(server, "["), "]"), usual
	}
	n, err := strconv.ParseUint(port, 10, 16)
	_, notIP := netip.ParseAddr(host)
	if host == "" || err != nil || n == 0 || notIP != nil && strings.ContainsAny(host, "[]/: ") {
		return "", fmt.Errorf("want host:port, got %q", server)
	}
	return net.JoinHostPort(host, port), nil
}

// cut reports whether the host is the beginning of a user and password with a / or ?.
func cut(rest string) bool {
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, "?")
	_, port, ok := strings.Cut(host, ":")
	return ok && !strings.ContainsAny(host, "@[,") && strings.Trim(port, "0123456789") != ""
}

// secrets are parameters that are removed with their name.
var secrets = []string{"username", "password", "token"}

// Shown returns an address of any scheme without its credentials, for people.
func Shown(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	if index := strings.LastIndexByte(rest, '@'); index >= 0 && cut(rest) {
		rest = rest[index+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	host, path, hasPath := strings.Cut(rest, "/")
	host = host[strings.LastIndexByte(host, '@')+1:]
	if hasPath {
		path = "/" + path
	}
	var parameters []string
	for parameter := range strings.SplitSeq(query, "&") {
		switch name, _, _ := strings.Cut(parameter, "="); {
		case name == "" || slices.Contains(secrets, strings.ToLower(name)):
		case slices.Contains(secret.PublicParameters, name):
			parameters = append(parameters, parameter)
		default:
			parameters = append(parameters, name+"=…")
		}
	}
	if len(parameters) > 0 {
		path += "?" + strings.Join(parameters, "&")
	}
	return scheme + "://" + host + path
}

// Hint adds the cause to the error of a connection if only one side uses TLS. secure says that this side does.
func Hint(err error, secure bool) error {
	if err == nil {
		return nil
	}
	message := err.Error()
	says := func(signs ...string) bool {
		return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(message, sign) })
	}
	switch {
	case secure && says("first record does not look like a TLS handshake", "gave HTTP response to HTTPS client"):
		return fmt.Errorf("%w (it does not speak TLS: see tlsSettings)", err)
	case !secure && (says("malformed HTTP response", "error reading server preface") || strings.HasSuffix(message, "EOF")):
		return fmt.Errorf("%w (it may speak TLS alone: see tlsSettings)", err)
	}
	return err
}
