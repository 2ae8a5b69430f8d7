package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tributary/cmd/internal/client"
	"tributary/config"
	"tributary/internal/process"
	"tributary/internal/relay"
	"tributary/internal/words"
	"tributary/server/transport"
)

// clock looks whether somebody sets the clock of the machine: certificates, tokens, and the times of the history depend on it.
func (d *Doctor) clock() {
	synchronized, known := clockSynchronized()
	switch {
	case !known:
		d.note(ofClock, Skipped, "this system does not tell whether its clock is set", "")
	case !synchronized:
		d.note(ofClock, Warning, fmt.Sprintf("no time-sync service found; the clock says %s", time.Now().UTC().Format(time.RFC3339)),
			"run chrony, ntpd or systemd-timesyncd: certificates and tokens are judged by the clock")
	default:
		d.note(ofClock, Fine, "it is kept right", "")
	}
}

func (d *Doctor) descriptors() {
	switch n := transport.Descriptors(); {
	case n >= 0 && n < relay.FewDescriptors:
		d.note(ofFiles, Warning, fmt.Sprintf("this user may have %d files open at once, which limits the clients", n),
			fmt.Sprintf("raise ulimit -n, or LimitNOFILE= of the service, to %d or more", relay.FewDescriptors))
	case n < 0:
		d.note(ofFiles, Fine, "there is no limit", "")
	default:
		d.note(ofFiles, Fine, fmt.Sprintf("%d at once", n), "")
	}
}

// watches looks whether the directories of sources of files can be watched.
func (d *Doctor) watches(cfg *config.Config) {
	directories := 0
	for _, s := range cfg.ConfigSources {
		if _, files := s.Settings.(*config.File); files {
			// what cannot be read is a finding of its source
			_ = filepath.WalkDir(strings.TrimPrefix(s.Address, "fs://"), func(_ string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					directories++
				}
				return nil //nolint:nilerr // the rest can be walked
			})
		}
	}
	if directories == 0 {
		return
	}
	text, _ := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		d.note(ofWatches, Skipped, "this system does not tell how much may be watched", "")
		return
	}
	said := fmt.Sprintf("%s of sources, of %d that a user may watch", words.Count(directories, "directory", "directories"), limit)
	if directories > limit/2 {
		d.note(ofWatches, Warning, said, fmt.Sprintf("sysctl fs.inotify.max_user_watches=%d: without a watch, changes are found by looking again",
			4*directories))
		return
	}
	d.note(ofWatches, Fine, said, "")
}

// leastFree is how much room on the disk is little, in bytes.
const leastFree = 256 << 20

// state looks whether the state directory can be used. It changes nothing there but for a file that comes and goes.
func (d *Doctor) state(cfg *config.Config) {
	path, _, err := relay.StatePath(cfg, relay.Origin{File: d.File})
	switch {
	case err != nil:
		d.note(ofState, Error, err.Error(), "name a directory with stateDir")
		return
	case path == "":
		d.note(ofState, Warning, "nothing is kept across restarts",
			"name a directory with stateDir: after a restart while a registry is down, nothing of it is served")
		return
	}
	existing, where := path, ""
	if path == cfg.StateDir {
		where = cfg.At("stateDir") + ": "
	}
	for {
		info, err := os.Stat(existing)
		if err == nil && !info.IsDir() {
			d.note(ofState, Error, where+existing+" is not a directory", "name another one with stateDir")
			return
		}
		if err == nil {
			break
		}
		parent := filepath.Dir(existing)
		if !errors.Is(err, fs.ErrNotExist) || parent == existing {
			d.note(ofState, Error, where+err.Error(), "give it to the user who runs tributary, or name another one with stateDir")
			return
		}
		existing = parent
	}
	probe, err := os.CreateTemp(existing, ".tributary-doctor-*")
	if err != nil {
		d.note(ofState, Error, fmt.Sprintf("%s%s: this user cannot write there: %v", where, path, err),
			"give it to the user who runs tributary, or run doctor as that one")
		return
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		d.note(ofState, Error, err.Error(), "see the disk")
		return
	}
	if free, known := freeBytes(existing); known && free < leastFree {
		d.note(ofState, Warning, fmt.Sprintf("%s: %d MiB are free on the disk", path, free>>20),
			"make room: what cannot be stored is served, and lost by a restart")
		return
	}
	d.note(ofState, Fine, path+" can be written", "")
}

// patience is how long a name has to be found, and an istiod to answer.
const patience = 5 * time.Second

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
	severity, fix := Fine, ""
	if c.Expired || c.Soon {
		severity, fix = Warning, "put another in its place; a server that runs takes it up by itself"
	}
	if c.Expired {
		severity = Error
	}
	d.note(ofTLS, severity, said, fix)
}

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
		if err == nil {
			_ = lis.Close() // nobody has come
			d.note(ofPorts, Fine, fmt.Sprintf("%s: %s is free", p.key, p.address), "")
			continue
		}
		fix := "correct the address: it has to be one of this machine"
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			fix = "find who has it with ss -ltnp, and end that, or take another port"
		case errors.Is(err, syscall.EACCES):
			fix = "take a port from 1024 on, or give the service CAP_NET_BIND_SERVICE; a socket needs a directory that the user may write to"
		}
		d.note(ofPorts, Error, fmt.Sprintf("%s: %v", p.key, err), fix)
	}
}

// Through is an address by which an istiod reads from us, with all that is in between.
type Through struct {
	Client  *client.XDS   // its node is one of its own
	Hold    time.Duration // for how long an idle stream is to stand
	Holding func()        // told when it begins
}

// arrival is for how long a server may not know yet who asks.
const arrival = 5 * time.Second

// keepalive looks whether an idle stream stands, with the pings of an istiod.
func (d *Doctor) keepalive(ctx context.Context, cfg *config.Config) {
	if d.Through == nil || d.Offline {
		d.note(ofKeepalive, Skipped, "no idle stream was held: name the address that istiod has for us with --through", "")
		return
	}
	address := d.Through.Client.Server
	arrived := true
	stood, err := d.Through.Client.Stay(ctx, d.Through.Hold, func() {
		d.Through.Holding()
		if d.Running != nil && cfg != nil && d.running != nil {
			arrived = d.sees(ctx, cfg, d.Through.Client.NodeID)
		}
	})
	if ctx.Err() != nil {
		return
	}
	after := stood.Round(time.Millisecond)
	if stood > time.Second {
		after = stood.Round(time.Second)
	}
	severity, said, fix := Error, fmt.Sprintf("%s: after %s %v", address, after, err), ""
	switch {
	case err == nil:
		severity, said = Fine, fmt.Sprintf("%s: an idle stream stood for %s", address, after)
	case errors.Is(err, client.ErrPings):
		fix = "it is not our port that does so: find what answers there, and have it allow a ping every 30 s (KeepaliveEnforcementPolicy of " +
			"gRPC), or have it pass TCP on as it is"
	case errors.Is(err, client.ErrSilent):
		fix = "a firewall or NAT in between forgets connections that are idle: have it keep them for longer than the 30 s after which istiod " +
			"pings"
	case errors.Is(err, client.ErrEnded):
		fix = "unless tributary was ended: raise the idle timeout of the balancer or proxy in between above 30 s; if it is one for HTTP, which " +
			"answers pings itself, have it never end idle streams, nor connections for their age, or pass TCP on as it is"
	default:
		said = err.Error()
		fix = "see that the address is the one in istiod's configSources, and can be reached from here; for TLS give --tls-ca, --tls-cert and " +
			"--tls-key as istiod has them"
	}
	d.note(ofKeepalive, severity, said, fix)
	if !arrived {
		d.note(ofKeepalive, Warning, fmt.Sprintf("%s: who answers there is not the server that runs with %s", address, d.File),
			"see that what is in between leads to this server; of several replicas it may have been another one")
	}
}

// sees reports whether the server that runs has a client of that node. A stream is there before the server knows what it asks for.
func (d *Doctor) sees(ctx context.Context, cfg *config.Config, node string) bool {
	for end := time.Now().Add(arrival); ; time.Sleep(arrival / 50) {
		now := d.Running(ctx, cfg)
		if now == nil || now.has(node) {
			return true
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return false
		}
	}
}

func (r *Running) has(node string) bool {
	for _, nodes := range r.Asked {
		if slices.Contains(nodes, node) {
			return true
		}
	}
	return false
}
