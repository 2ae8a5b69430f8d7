package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

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
	*address, _ = defaultServer() // checkServer says what is wrong
	return xdsServer{address}
}

// defaultServer is the server that is meant if none is given. The error says what is wrong with the variable.
func defaultServer() (string, error) {
	given := os.Getenv(envServer)
	if given == "" {
		return config.DefaultXDS, nil
	}
	address, err := xdsAddress(given)
	if err != nil {
		return given, usage("$%s %s: %w", envServer, given, err)
	}
	return address, nil
}

// checkServer says what is wrong with the variable, if it is that which names the server that cmd asks.
func checkServer(cmd *cobra.Command) error {
	server := cmd.Flags().Lookup("server")
	if server == nil || server.Changed || cmd.Flags().Changed("store") || cmd.Flags().Changed("at") {
		return nil
	}
	if _, is := server.Value.(xdsServer); !is {
		return nil
	}
	_, err := defaultServer()
	return err
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
		return "", fmt.Errorf("%s:// is not for xDS: want host:port; what speaks HTTP may be the admin port (listen.admin)", scheme)
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
