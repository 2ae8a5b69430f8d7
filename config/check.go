package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"tributary/internal/words"
	"tributary/sources/dubbo"
)

// check notes the problems of config, and completes it with defaults. Relative paths are relative to dir.
func (d *decoder) check(config *Config, dir string) {
	d.checkListen(&config.Listen, dir)
	d.checkServing(config)
	d.checkHistory(&config.History)
	d.checkProofs(&config.Identity, dir)
	d.checkAccess(config)
	if config.StateDir != StateOff && strings.EqualFold(config.StateDir, StateOff) {
		d.problem("stateDir", "want %s for none, or ./%s for a directory of that name", StateOff, config.StateDir)
	}
	if config.StateDir != "" && config.StateDir != StateOff && !filepath.IsAbs(config.StateDir) {
		config.StateDir = filepath.Join(dir, config.StateDir)
	}
	d.checkVIPs(config.VirtualAddresses)
	if len(config.ConfigSources) == 0 && len(d.problems) == 0 {
		d.problem("configSources", "at least one source is needed, such as `- address: fs:///etc/tributary/rules`")
	}
	names := map[string]string{} // name to the key of its source
	for i := range config.ConfigSources {
		source, key := &config.ConfigSources[i], fmt.Sprintf("configSources[%d]", i)
		d.checkSource(source, key, dir)
		d.checkGuard(source.Guard, key+".guard")
		d.checkMerge(source.Merge, key+".merge")
		d.checkTransform(source, key+".transform")
		if source.Name == "" {
			continue
		}
		if first, taken := names[source.Name]; taken {
			d.problem(key+".name", "%q is also the name of %s; give each source a `name` of its own", source.Name, first)
			continue
		}
		names[source.Name] = key
	}
	if len(d.problems) == 0 && config.Places == nil { // else a check has warned already, with the places
		d.warnDuplicates(config.ConfigSources)
		d.warnParameters(config.ConfigSources)
		d.warnDoubts(config.ConfigSources)
		d.warnDeadRules(config)
	}
	if len(d.problems) == 0 { // flags may have changed the listeners
		config.Warnings = slices.DeleteFunc(config.Warnings,
			func(w Problem) bool { return strings.HasPrefix(w.Key, "listen.") })
		d.warnExposed(config)
		d.hide(d.warnings)
		config.Warnings = append(config.Warnings, d.warnings...)
	}
}

// warnDoubts warns of each setting of a source that is valid but probably a mistake. The text of a doubt begins with
// the key.
func (d *decoder) warnDoubts(sources []Source) {
	for i := range sources {
		if settings, ok := sources[i].Settings.(interface{ doubts() []string }); ok {
			for _, doubt := range settings.doubts() {
				setting, message, _ := strings.Cut(doubt, ": ")
				d.warn(fmt.Sprintf("configSources[%d].%s", i, setting), "%s", message)
			}
		}
		if secured, ok := sources[i].Settings.(interface{ unverified(address string) string }); ok {
			if key := secured.unverified(sources[i].Address); key != "" {
				d.warn(fmt.Sprintf("configSources[%d].%s", i, key),
					"the certificate of the server is not verified: anybody on the way to it "+
						"can read the credentials and decide what is served; give the certificates of its authority instead")
			}
		}
	}
}

// warnDuplicates warns of each source that publishes the same as an earlier source.
func (d *decoder) warnDuplicates(sources []Source) {
	first := make(map[string]int)
	for i := range sources {
		source := &sources[i]
		id := source.Reading()
		j, duplicate := first[id]
		if !duplicate {
			first[id] = i
			continue
		}
		original := d.place(fmt.Sprintf("configSources[%d].address", j))
		d.warn(fmt.Sprintf("configSources[%d].address", i), "source %s reads the same as source %s (%s)", source.Name,
			sources[j].Name, original.Place())
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// effectiveParameters are the parameters of addresses that have an effect, for registries where others are ignored:
// Dubbo's users write parameters for consumers and providers into the same URL.
var effectiveParameters = map[string][]string{
	dubbo.Scheme:      {"backup", "group", "timeout", "session", "username", "password"},
	dubbo.NacosScheme: {"backup", "namespace", "group", "contextPath", "grpcOffset", "username", "password", "kind"},

	dubbo.ConsulScheme: {"dc", "ns", "partition", "kind"},
}

// ignoredParameters are parameters of Dubbo's and Nacos' users that have no effect, with the setting to use instead.
var ignoredParameters = map[string]map[string]string{
	dubbo.Scheme:      {"register-mode": byRegisterMode},
	dubbo.NacosScheme: {"register-mode": byRegisterMode},
	dubbo.ConsulScheme: {
		"register-mode": byRegisterMode, "datacenter": "is passed over; did you mean dc?",
		"group": "is passed over: Consul has no groups, but dc, ns and partition",
	},
}

const byRegisterMode = "is passed over; what to read is said by registerMode beside the address"

// refusedParameters are parameters with credentials that the source would ignore.
var refusedParameters = map[string]map[string]string{
	dubbo.NacosScheme: {
		"accesskey": noAccessKeys, "secretkey": noAccessKeys, "access-key": noAccessKeys,
		"secret-key": noAccessKeys,
	},
	dubbo.ConsulScheme: {"acl-token": byTokenFile, "acltoken": byTokenFile, "acl_token": byTokenFile},
}

const (
	noAccessKeys = "is none of ours: keys of a cloud are not used to log in, but username and password are"
	byTokenFile  = "is none of ours: a token stands in the file that tokenFile names, or in " +
		"CONSUL_HTTP_TOKEN" //nolint:gosec // where one stands, and none
)

// scheme returns the key of an address in the tables of parameters.
func scheme(address string) string {
	name, _, _ := strings.Cut(address, "://")
	if name == dubbo.ConsulSecureScheme {
		return dubbo.ConsulScheme
	}
	return name
}

// checkParameters rejects an address with refusedParameters.
func (d *decoder) checkParameters(address, key string) {
	for _, parameter := range sortedKeys(parametersIn(address)) {
		if reason := refusedParameters[scheme(address)][strings.ToLower(parameter)]; reason != "" {
			d.problem(key, "the parameter %s %s", parameter, reason)
		}
	}
}

// warnParameters warns of each ignored parameter that is probably a misspelt effective one.
func (d *decoder) warnParameters(sources []Source) {
	for i := range sources {
		effective, ignored := effectiveParameters[scheme(sources[i].Address)], ignoredParameters[scheme(sources[i].Address)]
		for _, parameter := range sortedKeys(parametersIn(sources[i].Address)) {
			reason, guess := ignored[parameter], words.Nearest(parameter, effective)
			switch {
			case slices.Contains(effective, parameter):
				continue
			case reason != "":
			case len(effective) == 0 || guess == "" || parameter == "version": // a parameter of Dubbo, similar to session
				continue
			default:
				reason = fmt.Sprintf("is passed over; did you mean %s?", guess)
			}
			d.warn(fmt.Sprintf("configSources[%d].address", i), "the parameter %s %s", parameter, reason)
		}
	}
}
