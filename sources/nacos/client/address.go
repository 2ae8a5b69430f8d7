package client

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Scheme is that of addresses of Nacos.
const Scheme = "nacos"

// Address is where a Nacos is, as Dubbo's users write it:
// nacos://[user:password@]host:8848?backup=host:8848,host:8848&namespace=public&group=DEFAULT_GROUP.
type Address struct {
	Servers        []string // host:port of HTTP; that of gRPC is GRPCOffset above
	User, Password string
	Namespace      string // its id; empty for the public one
	Group          string
	ContextPath    string // of HTTP, without slashes
	GRPCOffset     int
}

// The defaults, which are those of Nacos.
const (
	DefaultGroup       = "DEFAULT_GROUP"
	PublicNamespace    = "public"
	defaultPort        = "8848"
	defaultContextPath = "nacos"
	defaultOffset      = 1000
)

// ParseAddress reads an address. Parameters that are for consumers and providers are let pass, as they stand in the same URL.
func ParseAddress(address string) (a Address, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return Address{}, fmt.Errorf("address: want %s://host:8848?namespace=ID&group=NAME", Scheme)
	}
	if u.Scheme != Scheme || u.Host == "" {
		return Address{}, fmt.Errorf("address: want %s://host:8848?namespace=ID&group=NAME, got %q", Scheme, u.Redacted())
	}
	q := u.Query()
	a = Address{Group: DefaultGroup, ContextPath: defaultContextPath, GRPCOffset: defaultOffset}
	for _, list := range append([]string{u.Host}, q["backup"]...) {
		for server := range strings.SplitSeq(list, ",") {
			if server, err = withPort(strings.TrimSpace(server)); err != nil {
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
		a.User, a.Password = q.Get("username"), q.Get("password")
	}
	if n := q.Get("namespace"); n != PublicNamespace {
		a.Namespace = n
	}
	if g := q.Get("group"); g != "" {
		a.Group = g
	}
	if q.Has("contextPath") {
		a.ContextPath = strings.Trim(q.Get("contextPath"), "/")
	}
	if text := q.Get("grpcOffset"); text != "" {
		if a.GRPCOffset, err = strconv.Atoi(text); err != nil {
			return Address{}, fmt.Errorf("address: grpcOffset: want a number, got %q", text)
		}
	}
	for _, server := range a.Servers {
		if _, err := a.grpc(server); err != nil {
			return Address{}, fmt.Errorf("address: %w", err)
		}
	}
	return a, nil
}

// withPort adds the usual port to a server that names none.
func withPort(server string) (string, error) {
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
	return net.JoinHostPort(host, defaultPort), nil
}

// grpc returns where a server takes gRPC.
func (a Address) grpc(server string) (string, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(port)
	if n += a.GRPCOffset; err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("%s: %d is no port for gRPC", server, n)
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// NamespaceName is the namespace as people call it.
func (a Address) NamespaceName() string {
	if a.Namespace == "" {
		return PublicNamespace
	}
	return a.Namespace
}

// TLS gives what a connection to a host needs; nil is a connection without TLS. It is asked each time, since certificates change.
type TLS func(host string) (*tls.Config, error)
