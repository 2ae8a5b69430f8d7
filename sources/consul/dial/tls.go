package dial

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"

	"tributary/adsc"
)

// security makes the TLS configuration of a connection. It reads the files for each connection, so that certificates
// can be replaced.
type security struct {
	host     string
	settings *adsc.TLS // nil for the environment
	skip     bool      // CONSUL_HTTP_SSL_VERIFY=false
}

// secured decides whether connections are encrypted, and how. tlsSettings replace all variables about TLS: the two are
// never mixed.
func secured(address Address, settings *adsc.TLS) (*security, error) {
	if settings != nil {
		if err := settings.Check(); err != nil {
			return nil, fmt.Errorf("tlsSettings.%w", err)
		}
		switch {
		case address.Unix && settings.Secure():
			return nil, fmt.Errorf("tlsSettings.mode: %s is a unix socket, which has no %s", address, settings.Mode)
		case settings.Secure():
			return &security{host: address.Host, settings: settings}, nil
		case address.Secure:
			return nil, fmt.Errorf("tlsSettings.mode: the address asks for https; write SIMPLE or MUTUAL, or leave " +
				"tlsSettings out")
		default:
			return nil, nil // plaintext
		}
	}
	enabled, err := flag(api.HTTPSSLEnvName, false)
	verify, verifyErr := flag(api.HTTPSSLVerifyEnvName, true)
	if err = cmp.Or(err, verifyErr); err != nil {
		return nil, err
	}
	if address.Unix || !address.Secure && !enabled {
		return nil, nil // plaintext
	}
	for _, pair := range [][2]string{{api.HTTPClientCert, api.HTTPClientKey}, {api.HTTPClientKey, api.HTTPClientCert}} {
		if os.Getenv(pair[0]) != "" && os.Getenv(pair[1]) == "" {
			return nil, fmt.Errorf("%s: needs %s, too", pair[0], pair[1])
		}
	}
	return &security{host: address.Host, skip: !verify}, nil
}

// flag reads a variable as the official client does, but refuses invalid values.
func flag(name string, standard bool) (bool, error) {
	value := os.Getenv(name)
	parsed, err := strconv.ParseBool(cmp.Or(value, strconv.FormatBool(standard)))
	if err != nil {
		return false, fmt.Errorf("%s: want true or false, got %q", name, value)
	}
	return parsed, nil
}

// config reads the files of the settings or the environment.
func (s *security) config() (*tls.Config, error) {
	host, _, err := net.SplitHostPort(s.host)
	if err != nil {
		return nil, err
	}
	var config *tls.Config
	if s.settings != nil {
		if config, err = s.settings.Config(host); err != nil {
			return nil, fmt.Errorf("tlsSettings.%w", err)
		}
	} else {
		from := api.DefaultNonPooledConfig().TLSConfig
		from.InsecureSkipVerify = s.skip
		if config, err = api.SetupTLSConfig(&from); err != nil {
			var variables []string // the official code does not name the one at fault
			for _, name := range []string{
				api.HTTPCAFile, api.HTTPCAPath, api.HTTPClientCert, api.HTTPClientKey, api.HTTPTLSServerName,
			} {
				if os.Getenv(name) != "" {
					variables = append(variables, name)
				}
			}
			return nil, fmt.Errorf("%s: %w", strings.Join(variables, ", "), err)
		}
		config.ServerName = cmp.Or(config.ServerName, host)
	}
	config.MinVersion = tls.VersionTLS12
	config.NextProtos = []string{"h2", "http/1.1"} // with HTTP/2, all watches share a few connections
	return config, nil
}

// dialer returns a function that makes encrypted connections on those of a dialer.
func (s *security) dialer(dialer *net.Dialer) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		config, err := s.config()
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
	}
}
