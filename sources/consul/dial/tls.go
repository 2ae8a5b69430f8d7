package dial

import (
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

// security makes the TLS configuration of a connection. It reads files anew each time, so that certificates can be
// exchanged.
type security struct {
	host     string
	settings *adsc.TLS // or nil: then the environment counts
	skip     bool      // CONSUL_HTTP_SSL_VERIFY=false
}

// secured decides whether connections are encrypted, and how. tlsSettings stand for all variables about TLS: the two are
// never mixed.
func secured(a Address, settings *adsc.TLS) (*security, error) {
	if settings != nil {
		if err := settings.Check(); err != nil {
			return nil, fmt.Errorf("tlsSettings.%w", err)
		}
		switch {
		case a.Unix && settings.Secure():
			return nil, fmt.Errorf("tlsSettings.mode: %s is a unix socket, which %s is not for", a, settings.Mode)
		case settings.Secure():
			return &security{host: a.Host, settings: settings}, nil
		case a.Secure:
			return nil, fmt.Errorf("tlsSettings.mode: the address asks for https; write SIMPLE or MUTUAL, or leave tlsSettings out")
		default:
			return nil, nil // plaintext
		}
	}
	on, err := boolean("CONSUL_HTTP_SSL", false)
	if err != nil {
		return nil, err
	}
	verify, err := boolean("CONSUL_HTTP_SSL_VERIFY", true)
	if err != nil {
		return nil, err
	}
	if a.Unix || !a.Secure && !on {
		return nil, nil // plaintext
	}
	s := &security{host: a.Host, skip: !verify}
	for _, pair := range [][2]string{{"CONSUL_CLIENT_CERT", "CONSUL_CLIENT_KEY"}, {"CONSUL_CLIENT_KEY", "CONSUL_CLIENT_CERT"}} {
		if os.Getenv(pair[0]) != "" && os.Getenv(pair[1]) == "" {
			return nil, fmt.Errorf("%s: needs %s, too", pair[0], pair[1])
		}
	}
	return s, nil
}

// boolean reads a variable as the official client does, but takes no nonsense for false.
func boolean(name string, standard bool) (bool, error) {
	value := os.Getenv(name)
	if value == "" {
		return standard, nil
	}
	v, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("%s: want true or false, got %q", name, value)
	}
	return v, nil
}

// config reads what the settings or the environment name.
func (s *security) config() (*tls.Config, error) {
	host, _, err := net.SplitHostPort(s.host)
	if err != nil {
		return nil, err
	}
	cfg, err := s.read(host)
	if err != nil {
		return nil, err
	}
	cfg.MinVersion = tls.VersionTLS12
	cfg.NextProtos = []string{"h2", "http/1.1"} // HTTP/2 has all watches on a few connections
	return cfg, nil
}

func (s *security) read(host string) (*tls.Config, error) {
	if s.settings != nil {
		cfg, err := s.settings.Config(host)
		if err != nil {
			return nil, fmt.Errorf("tlsSettings.%w", err)
		}
		return cfg, nil
	}
	from := api.TLSConfig{
		Address:            os.Getenv("CONSUL_TLS_SERVER_NAME"),
		CAFile:             os.Getenv("CONSUL_CACERT"),
		CAPath:             os.Getenv("CONSUL_CAPATH"),
		CertFile:           os.Getenv("CONSUL_CLIENT_CERT"),
		KeyFile:            os.Getenv("CONSUL_CLIENT_KEY"),
		InsecureSkipVerify: s.skip,
	}
	cfg, err := api.SetupTLSConfig(&from)
	if err != nil {
		var set []string // the official code does not tell which of them it read
		for _, name := range []string{"CONSUL_CACERT", "CONSUL_CAPATH", "CONSUL_CLIENT_CERT", "CONSUL_CLIENT_KEY", "CONSUL_TLS_SERVER_NAME"} {
			if os.Getenv(name) != "" {
				set = append(set, name)
			}
		}
		return nil, fmt.Errorf("%s: %w", strings.Join(set, ", "), err)
	}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	return cfg, nil
}

// dialer returns a function that makes encrypted connections by means of dial.
func (s *security) dialer(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn,
	error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		cfg, err := s.config()
		if err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(conn, cfg)
		handshake, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if err := secure.HandshakeContext(handshake); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secure, nil
	}
}
