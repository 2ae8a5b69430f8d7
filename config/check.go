package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// check notes what is wrong with c, and completes it with defaults. Relative paths are taken from dir.
func (d *decoder) check(c *Config, dir string) {
	d.checkListen(&c.Listen, dir)
	d.checkServing(c)
	d.checkHistory(&c.History)
	d.checkVerify(c.Verify)
	d.checkProofs(&c.Identity, dir)
	d.checkAccess(c)
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
		d.alike(c.ConfigSources)
		d.slips(c.ConfigSources)
		d.doubts(c.ConfigSources)
		d.dead(c)
	}
	if len(d.problems) == 0 { // the command line says otherwise where to listen
		c.Warnings = slices.DeleteFunc(c.Warnings, func(w Problem) bool { return strings.HasPrefix(w.Key, "listen.") })
		d.exposed(c)
		c.Warnings = append(c.Warnings, d.warnings...)
	}
}

// doubts warns of each setting of a source that is valid and yet probably a mistake. What settings say of themselves begins with the key.
func (d *decoder) doubts(all []Source) {
	for i := range all {
		if of, ok := all[i].Settings.(interface{ doubts() []string }); ok {
			for _, doubt := range of.doubts() {
				at, message, _ := strings.Cut(doubt, ": ")
				d.warn(fmt.Sprintf("configSources[%d].%s", i, at), "%s", message)
			}
		}
	}
}

// alike warns of each source that reads the same as one before it, and makes the same of it.
func (d *decoder) alike(all []Source) {
	first := make(map[string]int)
	for i := range all {
		s := &all[i]
		id := s.Identity() + " " + s.Reading()
		j, again := first[id]
		if !again {
			first[id] = i
			continue
		}
		other := d.problemOf(d.place(fmt.Sprintf("configSources[%d].address", j)), "", "")
		d.warn(fmt.Sprintf("configSources[%d].address", i), "source %s reads the same as source %s (%s)", s.Name, all[j].Name, other.Place())
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
