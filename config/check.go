package config

import (
	"fmt"
	"maps"
	"net"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// schemes are the kinds of source address, each with the check of what belongs to it.
var schemes = map[string]func(d *decoder, s *ConfigSource, key, dir string){
	"fs": (*decoder).checkFile,
}

// check notes what is wrong with c, and completes it with defaults. Relative paths are taken from dir.
func (d *decoder) check(c *Config, dir string) {
	d.checkListen(&c.Listen)
	if c.StateDir != "" {
		c.StateDir = resolve(dir, c.StateDir)
	}
	if len(c.ConfigSources) == 0 && len(d.problems) == 0 {
		d.problem("configSources", "at least one source is needed, such as `- address: fs:///etc/tributary/rules`")
	}
	names := map[string]string{} // name to the key of its source
	for i := range c.ConfigSources {
		s, key := &c.ConfigSources[i], fmt.Sprintf("configSources[%d]", i)
		d.checkSource(s, key, dir)
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

func (d *decoder) checkSource(s *ConfigSource, key, dir string) {
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

func (d *decoder) checkFile(s *ConfigSource, key, dir string) {
	if s.TLSSettings != nil {
		d.problem(key+".tlsSettings", "not for fs addresses, which have no connection")
	}
	if s.SubscribedResources != nil {
		d.problem(key+".subscribedResources", "not for fs addresses")
	}
	if s.DefaultNamespace == "" {
		s.DefaultNamespace = "default"
	}
	if s.Rescan == 0 {
		s.Rescan = Duration(30 * time.Second)
	} else if s.Rescan < Duration(time.Second) {
		d.problem(key+".rescan", "want 1s or more, got %s", s.Rescan)
	}
	switch s.UnknownFields {
	case "":
		s.UnknownFields = "error"
	case "error", "warn":
	default:
		d.problem(key+".unknownFields", "want error or warn, got %q", s.UnknownFields)
	}
	s.Address = "fs://" + filepath.ToSlash(resolve(dir, s.Path()))
	if s.Name == "" {
		s.Name = nameOf(s.Address)
	}
}

// notInName is what nameOf replaces.
var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// nameOf makes a source name of an address: its last element, without what a name may not have.
func nameOf(address string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	name := strings.Trim(notInName.ReplaceAllString(path.Base(rest), "-"), "._-")
	if name == "" {
		return scheme
	}
	return name
}

func resolve(dir, p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(dir, p)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
