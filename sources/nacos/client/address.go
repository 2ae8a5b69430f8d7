package client

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"tributary/internal/address"
	"tributary/internal/fetch"
	"tributary/internal/secret"
)

// Scheme is the scheme of addresses of Nacos.
const Scheme = "nacos"

// Address is the address of a Nacos in Dubbo's notation:
// nacos://[user:password@]host:8848?backup=host:8848,host:8848&namespace=public&group=DEFAULT_GROUP.
type Address struct {
	Servers     []string // host:port of HTTP; the port of gRPC is GRPCOffset above
	User        string
	Password    secret.Text
	Namespace   string // its ID; empty for the public one
	Group       string
	ContextPath string // of HTTP, without slashes
	GRPCOffset  int
}

// The defaults, which are those of Nacos.
const (
	DefaultGroup       = "DEFAULT_GROUP"
	PublicNamespace    = "public"
	defaultPort        = "8848"
	defaultContextPath = "nacos"
	defaultOffset      = 1000
)

// ParseAddress parses an address. It ignores parameters of consumers and providers, which are in the same URL.
func ParseAddress(text string) (parsed Address, err error) {
	generic, err := address.Parse(Scheme, "host:8848?namespace=ID&group=NAME", defaultPort, text)
	if err != nil {
		return Address{}, err
	}
	values := generic.Params
	parsed = Address{
		Servers: generic.Servers, User: generic.User, Password: generic.Password, Group: DefaultGroup,
		ContextPath: defaultContextPath,
		GRPCOffset:  defaultOffset,
	}
	if n := values.Get("namespace"); n != PublicNamespace {
		parsed.Namespace = n
	}
	if g := values.Get("group"); g != "" {
		parsed.Group = g
	}
	if values.Has("contextPath") {
		parsed.ContextPath = strings.Trim(values.Get("contextPath"), "/")
	}
	if text := values.Get("grpcOffset"); text != "" {
		if parsed.GRPCOffset, err = strconv.Atoi(text); err != nil {
			return Address{}, fmt.Errorf("address: grpcOffset: want a number, got %q", text)
		}
	}
	for _, server := range parsed.Servers {
		if _, err := parsed.grpc(server); err != nil {
			return Address{}, fmt.Errorf("address: %w", err)
		}
	}
	return parsed, nil
}

// grpc returns the gRPC address of a server.
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

// NamespaceName returns the namespace for people.
func (a Address) NamespaceName() string {
	if a.Namespace == "" {
		return PublicNamespace
	}
	return a.Namespace
}

// TLS returns the TLS configuration for a connection to a host; nil for a connection without TLS.
type TLS = fetch.TLS
