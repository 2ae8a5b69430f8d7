package config

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"tributary/internal/words"
	"tributary/sources/dubbo"
)

// check notes what is wrong with c, and completes it with defaults. Relative paths are taken from dir.
func (d *decoder) check(c *Config, dir string) {
	d.checkListen(&c.Listen, dir)
	d.checkServing(c)
	d.checkHistory(&c.History)
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
		d.hide(d.warnings)
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
		if secured, ok := all[i].Settings.(interface{ unverified(address string) string }); ok {
			if key := secured.unverified(all[i].Address); key != "" {
				d.warn(fmt.Sprintf("configSources[%d].%s", i, key), "the certificate of the server is not verified: anybody on the way to it "+
					"can read the credentials and decide what is served; give the certificates of its authority instead")
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
		other := d.place(fmt.Sprintf("configSources[%d].address", j))
		d.warn(fmt.Sprintf("configSources[%d].address", i), "source %s reads the same as source %s (%s)", s.Name, all[j].Name, other.Place())
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// parameters are those of addresses that count, of registries in whose addresses others are let pass: Dubbo's users write those for
// consumers and providers into the same URL.
var parameters = map[string][]string{
	dubbo.Scheme:      {"backup", "group", "timeout", "session", "username", "password"},
	dubbo.NacosScheme: {"backup", "namespace", "group", "contextPath", "grpcOffset", "username", "password", "kind"},

	dubbo.ConsulScheme: {"dc", "ns", "partition", "kind"},
}

// elsewhere are parameters that are let pass, as Dubbo's and Nacos' users write them, and whose meaning has to be said in another way here.
var elsewhere = map[string]map[string]string{
	dubbo.Scheme:      {"register-mode": byRegisterMode},
	dubbo.NacosScheme: {"register-mode": byRegisterMode},
	dubbo.ConsulScheme: {
		"register-mode": byRegisterMode, "datacenter": "is passed over; did you mean dc?",
		"group": "is passed over: Consul has no groups, but dc, ns and partition",
	},
}

const byRegisterMode = "is passed over; what to read is said by registerMode beside the address"

// refused are parameters that are meant to log in, and do not.
var refused = map[string]map[string]string{
	dubbo.NacosScheme:  {"accesskey": noAccessKeys, "secretkey": noAccessKeys, "access-key": noAccessKeys, "secret-key": noAccessKeys},
	dubbo.ConsulScheme: {"acl-token": byTokenFile, "acltoken": byTokenFile, "acl_token": byTokenFile},
}

const (
	noAccessKeys = "is none of ours: keys of a cloud are not used to log in, but username and password are"
	byTokenFile  = "is none of ours: a token stands in the file that tokenFile names, or in " +
		"CONSUL_HTTP_TOKEN" //nolint:gosec // where one stands, and none
)

// scheme is what the rules for the parameters of an address are found by.
func scheme(address string) string {
	name, _, _ := strings.Cut(address, "://")
	if name == dubbo.ConsulSecureScheme {
		return dubbo.ConsulScheme
	}
	return name
}

// checkParameters refuses those of an address with which somebody wanted to log in, in vain.
func (d *decoder) checkParameters(address, key string) {
	_, query, _ := strings.Cut(address, "?")
	values, _ := url.ParseQuery(query) // what is wrong with it is said where it is read
	for _, one := range slices.Sorted(maps.Keys(values)) {
		if why := refused[scheme(address)][strings.ToLower(one)]; why != "" {
			d.problem(key, "the parameter %s %s", one, why)
		}
	}
}

// slips warns of each parameter that is let pass, and was probably meant to be one that counts.
func (d *decoder) slips(all []Source) {
	for i := range all {
		known, others := parameters[scheme(all[i].Address)], elsewhere[scheme(all[i].Address)]
		_, query, _ := strings.Cut(all[i].Address, "?")
		values, _ := url.ParseQuery(query) // what is wrong with it was said
		for _, one := range slices.Sorted(maps.Keys(values)) {
			why, guess := others[one], words.Nearest(one, known)
			switch {
			case slices.Contains(known, one):
				continue
			case why != "":
			case len(known) == 0 || guess == "" || one == "version": // which is Dubbo's, and near to session
				continue
			default:
				why = fmt.Sprintf("is passed over; did you mean %s?", guess)
			}
			d.warn(fmt.Sprintf("configSources[%d].address", i), "the parameter %s %s", one, why)
		}
	}
}
