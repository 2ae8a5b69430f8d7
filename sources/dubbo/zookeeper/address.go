package zookeeper

import (
	"crypto/tls"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tributary/internal/address"
	"tributary/internal/secret"
)

// Scheme is the scheme of ZooKeeper's addresses.
const Scheme = "zookeeper"

// Address is the address of a registry, as Dubbo's users write it:
// zookeeper://[user:password@]host:2181[/root]?backup=host:2181,host:2181&group=dubbo&timeout=30000&session=60000.
type Address struct {
	Servers  []string // host:port
	User     string
	Password secret.Text
	Root     string // precedes all paths, in a shared ZooKeeper; empty, or /path
	Group    string // the registry's: the node above everything
	Timeout  time.Duration
	Session  time.Duration
}

// The defaults, which are Dubbo's.
const (
	DefaultGroup   = "dubbo"
	defaultPort    = "2181"
	defaultTimeout = 30 * time.Second
	defaultSession = 60 * time.Second
)

// ParseAddress parses an address. It ignores parameters for consumers and providers, which users write in the same URL.
func ParseAddress(text string) (parsed Address, err error) {
	generic, err := address.Parse(Scheme, "host:2181?backup=host:2181", defaultPort, text)
	if err != nil {
		return Address{}, err
	}
	values := generic.Params
	parsed = Address{
		Servers: generic.Servers, User: generic.User, Password: generic.Password, Root: strings.TrimRight(generic.Path, "/"),
		Group:   DefaultGroup,
		Timeout: defaultTimeout, Session: defaultSession,
	}
	if g := strings.Trim(values.Get("group"), "/"); g != "" {
		parsed.Group = g
	}
	for _, setting := range []struct {
		key   string
		value *time.Duration
		min   time.Duration
	}{{"timeout", &parsed.Timeout, 100 * time.Millisecond}, {"session", &parsed.Session, time.Second}} {
		if text := values.Get(setting.key); text != "" {
			n, err := strconv.ParseInt(text, 10, 32)
			*setting.value = time.Duration(n) * time.Millisecond
			if err != nil || *setting.value < setting.min {
				return Address{},
					fmt.Errorf("address: %s: want milliseconds, at least %d, got %q", setting.key, setting.min.Milliseconds(), text)
			}
		}
	}
	return parsed, nil
}

// group returns the path of the registry's group.
func (a Address) group() string { return a.Root + "/" + a.Group }

// TLS returns the TLS configuration for a connection to a host; a nil TLS means no TLS. It is called each time, since
// certificates change.
type TLS func(host string) (*tls.Config, error)

// New returns the registry at an address.
func New(a Address, config TLS, resync time.Duration) *Registry {
	return WithDial(dialer(a, config), a, resync)
}
