package client

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"tributary/internal/address"
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
func ParseAddress(text string) (Address, error) {
	scheme := Scheme
	if strings.HasPrefix(text, SecureScheme+"://") {
		scheme = SecureScheme
	}
	u, err := address.Parse(scheme, "host:"+defaultPort+defaultPath, defaultPort, text)
	if err != nil {
		return Address{}, err
	}
	for name := range u.Params {
		if name != "backup" {
			return Address{}, fmt.Errorf("address: unknown parameter %q; known: backup", name)
		}
	}
	if below := strings.TrimRight(u.Path, "/"); strings.HasSuffix(below, "/apps") || strings.Contains(below, "/apps/") {
		return Address{}, fmt.Errorf("address: the path is that of the API, such as %s; /apps, which is below it, is added", defaultPath)
	}
	path := (&url.URL{Path: cmp.Or(u.Path, defaultPath)}).EscapedPath()
	return Address{
		Servers: u.Servers, Path: strings.TrimRight(path, "/"), Secure: scheme == SecureScheme, User: u.User, Password: u.Password,
	}, nil
}
