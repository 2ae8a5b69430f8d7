package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"tributary/config"
)

// The variables that say which server is meant if no flag does.
const (
	envServer = "TRIBUTARY_SERVER"
	envAdmin  = "TRIBUTARY_ADMIN"
)

func defaultAdmin() string { return cmp.Or(os.Getenv(envAdmin), config.DefaultAdmin) }

// xdsServer is a flag with the address of a server of xDS. It implements pflag.Value.
type xdsServer struct{ address *string }

// newXDSServer returns the flag that sets address, which begins with the default.
func newXDSServer(address *string) xdsServer {
	*address = defaultServer()
	return xdsServer{address}
}

// defaultServer is the server that is meant if none is given. What is wrong with the variable shows when it is asked.
func defaultServer() string {
	given := os.Getenv(envServer)
	if address, err := xdsAddress(given); err == nil {
		return address
	}
	return cmp.Or(given, config.DefaultXDS)
}

func (s xdsServer) String() string {
	if s.address == nil {
		return ""
	}
	return *s.address
}

// Type is how the help calls the value.
func (s xdsServer) Type() string { return "address" }

// Set takes an address.
func (s xdsServer) Set(v string) (err error) {
	*s.address, err = xdsAddress(v)
	return err
}

// xdsAddress reads the address of a server of xDS as people write it, also as in a configuration.
func xdsAddress(v string) (string, error) {
	if strings.HasPrefix(v, "unix://") {
		return v, nil
	}
	address := strings.TrimPrefix(v, "xds://")
	if scheme, _, ok := strings.Cut(address, "://"); ok {
		return "", fmt.Errorf("%s:// is not for xDS: want host:port; what speaks HTTP may be the admin port, for which there is --admin", scheme)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return "", errors.New("want host:port")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("want a port from 1 to 65535, got %s", port)
	}
	return address, nil
}
