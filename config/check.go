package config

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tributary/sources/consul"
	"tributary/sources/consulkv"
	"tributary/sources/file"
	"tributary/sources/xds"
)

// schemes are the kinds of source address, each with the check of what belongs to it.
var schemes = map[string]func(d *decoder, s *Source, key, dir string){
	file.Scheme:         (*decoder).checkFile,
	xds.Scheme:          (*decoder).checkXDS,
	consul.Scheme:       (*decoder).checkConsul,
	consul.SecureScheme: (*decoder).checkConsul,

	consulkv.Scheme:       (*decoder).checkConsulKV,
	consulkv.SecureScheme: (*decoder).checkConsulKV,
}

// check notes what is wrong with c, and completes it with defaults. Relative paths are taken from dir.
func (d *decoder) check(c *Config, dir string) {
	d.checkListen(&c.Listen)
	d.checkServing(&c.Limits, &c.Debounce)
	if c.StateDir != "" && c.StateDir != StateOff && !filepath.IsAbs(c.StateDir) {
		c.StateDir = filepath.Join(dir, c.StateDir)
	}
	d.checkVIPs(c.VirtualAddresses)
	if len(c.ConfigSources) == 0 && len(d.problems) == 0 {
		d.problem("configSources", "at least one source is needed, such as `- address: fs:///etc/tributary/rules`")
	}
	names := map[string]string{} // name to the key of its source
	for i := range c.ConfigSources {
		s, key := &c.ConfigSources[i], fmt.Sprintf("configSources[%d]", i)
		d.checkSource(s, key, dir)
		d.checkGuard(s.Guard, key+".guard")
		d.checkMerge(s.Merge, key+".merge")
		d.checkTransform(s, key+".transform")
		if s.Name == "" {
			continue
		}
		if first, taken := names[s.Name]; taken {
			d.problem(key+".name", "%q is also the name of %s; give each source a `name` of its own", s.Name, first)
			continue
		}
		names[s.Name] = key
	}
}

func (d *decoder) checkListen(l *Listen) {
	for _, a := range []struct {
		key, fallback string
		address       *string
	}{
		{"listen.xds", DefaultXDS, &l.XDS},
		{"listen.admin", DefaultAdmin, &l.Admin},
	} {
		if *a.address == "" {
			*a.address = a.fallback
		}
		if err := checkHostPort(*a.address); err != nil {
			d.problem(a.key, "%v", err)
		}
	}
	if l.XDS == l.Admin && !strings.HasSuffix(l.XDS, ":0") {
		d.problem("listen.admin", "%s is also listen.xds", l.Admin)
	}
}

func checkHostPort(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("want host:port, got %q", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("want a port from 0 to 65535, got %q", port)
	}
	return nil
}

// sourceName is what a source may be called: names stand in metrics, in paths of the state directory and in messages.
var sourceName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

func (d *decoder) checkSource(s *Source, key, dir string) {
	if s.Name != "" && !sourceName.MatchString(s.Name) {
		d.problem(key+".name", "want letters, digits and `.` `_` `-` within, got %q", s.Name)
	}
	scheme, rest, ok := strings.Cut(s.Address, "://")
	checkScheme, known := schemes[scheme]
	switch {
	case s.Address == "":
		d.problem(key+".address", "missing, such as fs:///etc/tributary/rules")
	case !ok:
		d.problem(key+".address", "want SCHEME://…, got %q; a directory is written fs:///dir", s.Address)
	case !known:
		d.problem(key+".address", "unknown scheme %q; known: %s", scheme, strings.Join(sortedKeys(schemes), ", "))
	case rest == "":
		d.problem(key+".address", "nothing after %q", s.Address)
	default:
		checkScheme(d, s, key, dir)
	}
}

func (d *decoder) checkFile(s *Source, key, dir string) {
	if s.TLSSettings != nil {
		d.problem(key+".tlsSettings", "not for fs addresses, which have no connection")
	}
	if s.SubscribedResources != nil {
		d.problem(key+".subscribedResources", "not for fs addresses")
	}
	d.refuse(s.XDSSettings, key, file.Scheme)
	d.refuse(s.ConsulSettings, key, file.Scheme)
	s.Address = under(dir, s.Address)
	if _, err := file.New(s.Address, s.Settings()); err != nil {
		at, message, _ := strings.Cut(err.Error(), ": ") // the error begins with the key at fault
		d.problem(key+"."+at, "%s", message)
		return
	}
	if s.Name == "" {
		s.Name = nameOf(s.Address)
	}
}

// under makes an address that is relative, such as fs://./rules, one that is relative to dir.
func under(dir, address string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	if first, _, _ := strings.Cut(rest, "/"); first != "." && first != ".." {
		return address
	}
	escaped := (&url.URL{Path: filepath.ToSlash(dir)}).EscapedPath()
	joined := path.Join(escaped, rest)
	if !path.IsAbs(joined) && !strings.HasPrefix(joined, "../") {
		joined = "./" + joined
	}
	return scheme + "://" + joined
}

// notInName is what nameOf replaces.
var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// nameOf makes a source name of an address: its last element, without what a name may not have.
func nameOf(address string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	if plain, err := url.PathUnescape(rest); err == nil {
		rest = plain
	}
	name := strings.Trim(notInName.ReplaceAllString(path.Base(rest), "-"), "._-")
	if name == "" {
		return scheme
	}
	return name
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
