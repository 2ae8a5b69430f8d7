package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"tributary/config"
	"tributary/internal/process"
	"tributary/internal/words"
	"tributary/server/transport"
)

// patience is how long a name has to be found, and an istiod to answer.
const patience = 5 * time.Second

// names looks up the names in addresses.
func (d *Doctor) names(ctx context.Context, cfg *config.Config) {
	if d.Offline {
		d.note(ofDNS, Skipped, "names are not looked up (--offline)", "")
		return
	}
	looked := 0
	for _, s := range cfg.ConfigSources {
		for _, host := range hostsOf(s.Address) {
			if d.name(ctx, "source "+s.Name, host) {
				looked++
			}
		}
	}
	for _, v := range cfg.Verify {
		if u, err := url.Parse(v.Istiod + v.Envoy); err == nil && u.Host != "" && d.name(ctx, "verify", u.Hostname()) {
			looked++
		}
	}
	d.note(ofDNS, Fine, words.Count(looked, "name of a source was", "names of sources were")+" found", "")
}

// name looks one up, and reports whether it was found. An address is no name.
func (d *Doctor) name(ctx context.Context, whose, host string) bool {
	if net.ParseIP(host) != nil || host == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
		d.note(ofDNS, Error, fmt.Sprintf("%s: %v", whose, err),
			"correct the name in its address, or have it in DNS or /etc/hosts on this machine")
		return false
	}
	return true
}

// hostsOf returns the hosts in an address of a source; none in one of files.
func hostsOf(address string) (hosts []string) {
	scheme, rest, _ := strings.Cut(address, "://")
	if scheme == "fs" || strings.HasPrefix(rest, "/") {
		return nil
	}
	rest, query, _ := strings.Cut(rest, "?")
	rest, _, _ = strings.Cut(rest, "/")
	if i := strings.LastIndex(rest, "@"); i >= 0 { // before it stand a user and a password
		rest = rest[i+1:]
	}
	servers := strings.Split(rest, ",")
	if values, err := url.ParseQuery(query); err == nil {
		for _, backup := range values["backup"] {
			servers = append(servers, strings.Split(backup, ",")...)
		}
	}
	for _, server := range servers {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			host = strings.Trim(server, "[]")
		}
		if host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

func (d *Doctor) certificate(c transport.Status) {
	said := fmt.Sprintf("%s: %s of %s is valid until %s", c.Listener, c.File, c.Subject, c.NotAfter.UTC().Format(time.RFC3339))
	switch {
	case c.Expired:
		d.note(ofTLS, Error, said, "put another in its place; a server that runs takes it up by itself")
	case c.Soon:
		d.note(ofTLS, Warning, said, "put another in its place; a server that runs takes it up by itself")
	default:
		d.note(ofTLS, Fine, said, "")
	}
}

// ports looks whether what is to listen can.
func (d *Doctor) ports(ctx context.Context, cfg *config.Config) {
	type port struct{ key, address string }
	all := []port{{"listen.admin", cfg.Listen.Admin}}
	if cfg.Listen.XDS != config.ListenOff {
		all = append(all, port{"listen.xds", cfg.Listen.XDS})
	}
	if l := cfg.Listen.XDSTLS; l != nil {
		all = append(all, port{"listen.xdsTLS.address", l.Address})
	}
	for _, p := range all {
		if d.running != nil {
			d.note(ofPorts, Fine, fmt.Sprintf("%s: a tributary of version %s runs on %s", p.key, d.running.Version, p.address), "")
			continue
		}
		lis, err := process.Listen(ctx, p.address)
		switch {
		case err == nil:
			_ = lis.Close() // nobody has come
			d.note(ofPorts, Fine, fmt.Sprintf("%s: %s is free", p.key, p.address), "")
		case errors.Is(err, syscall.EADDRINUSE):
			d.note(ofPorts, Error, fmt.Sprintf("%s: %v", p.key, err), "find who has it with ss -ltnp, and end that, or take another port")
		case errors.Is(err, syscall.EACCES):
			d.note(ofPorts, Error, fmt.Sprintf("%s: %v", p.key, err),
				"take a port from 1024 on, or give the service CAP_NET_BIND_SERVICE; a socket needs a directory that the user may write to")
		default:
			d.note(ofPorts, Error, fmt.Sprintf("%s: %v", p.key, err), "correct the address: it has to be one of this machine")
		}
	}
}
