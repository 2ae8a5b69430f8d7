package config

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// check notes what is wrong with c, and completes it with defaults. Relative paths are taken from dir.
func (d *decoder) check(c *Config, dir string) {
	d.checkListen(&c.Listen)
	d.checkServing(c)
	if c.StateDir != StateOff && strings.EqualFold(c.StateDir, StateOff) {
		d.problem("stateDir", "want %s for none, or ./%s for a directory of that name", StateOff, c.StateDir)
	}
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
	if len(d.problems) == 0 && c.Places == nil { // else they are known, with their places
		c.Warnings = d.alike(c.ConfigSources)
	}
}

// alike returns a warning for each source that reads the same as one before it, and makes the same of it.
func (d *decoder) alike(all []Source) (warnings []Problem) {
	first := make(map[string]int)
	for i := range all {
		s := &all[i]
		rules := ""
		if made, err := s.Rules(); err == nil && made != nil {
			rules = made.Identity()
		}
		id := s.Identity() + " " + rules
		j, again := first[id]
		if !again {
			first[id] = i
			continue
		}
		key, other := fmt.Sprintf("configSources[%d].address", i), fmt.Sprintf("configSources[%d].address", j)
		at := d.place(other)
		warnings = append(warnings, Problem{
			File: d.file, Line: d.place(key).line, Column: d.place(key).column, Key: key,
			Message: fmt.Sprintf("source %s reads the same as source %s (%s)", s.Name, all[j].Name,
				Problem{File: d.file, Line: at.line, Column: at.column}.Place()),
		})
	}
	return warnings
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
	if overlap(l.XDS, l.Admin) {
		also := "also"
		if l.XDS != l.Admin {
			also = "also that of " + l.XDS + ", which is"
		}
		d.problem("listen.admin", "%s is %s listen.xds", l.Admin, also)
	}
}

// overlap reports whether two of our own listeners would be in each other's way.
func overlap(a, b string) bool {
	hostA, portA, err := net.SplitHostPort(a)
	hostB, portB, err2 := net.SplitHostPort(b)
	if err != nil || err2 != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || everywhere(hostA) || everywhere(hostB)
}

// everywhere reports whether a host stands for all addresses of the machine.
func everywhere(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
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

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
