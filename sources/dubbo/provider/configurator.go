package provider

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Configurator is a rule of the older kind, which changes parameters of providers: a URL such as
// override://10.0.0.5:20880/com.acme.Demo?category=configurators&weight=200. We apply only weight and disabled.
type Configurator struct{ URL }

// Configurator returns the rule of a URL, or false if it is none or switched off.
func (u URL) Configurator() (Configurator, bool) {
	rule := u.Protocol == "override" || u.Protocol == "absent"
	return Configurator{u}, rule && flag(u.Params, "enabled", true) &&
		cmp.Or(u.Params["category"], "configurators") == "configurators"
}

// Compare orders rules. Those that compare equal are the same rule.
func (c Configurator) Compare(o Configurator) int { return cmp.Compare(c.text(), o.text()) }

// text is a rule as a canonical string.
func (c Configurator) text() string {
	values := []string{c.Protocol, c.Host, strconv.Itoa(c.Port), c.Path}
	for _, key := range slices.Sorted(maps.Keys(c.Params)) {
		values = append(values, key, c.Params[key])
	}
	return strings.Join(values, "\x00")
}

// everywhere reports whether the rule is for all addresses.
func (c Configurator) everywhere() bool { return c.Host == "" || c.Host == "0.0.0.0" || c.Host == "*" }

// matches reports whether the rule applies to the provider.
func (c Configurator) matches(provider Provider) bool {
	matchesValue := func(key, value string) bool {
		want, ok := c.Params[key]
		return !ok || want == "" || want == "*" || slices.Contains(strings.Split(want, ","), value)
	}
	// A rule without a group or version applies to services without one, and * is no wildcard (UrlUtils.isMatch of 2.7.23
	// and 3.3.6).
	if id := newID(provider.Interface, c.Params["group"], c.Params["version"]); id != provider.ID {
		return false
	}
	if side := c.Params["side"]; side == "consumer" {
		return false // a rule for callers
	}
	for key, value := range c.Params {
		// A key with a tilde is a condition.
		if name, ok := strings.CutPrefix(key, "~"); ok && value != "*" && value != provider.Params[name] {
			return false
		}
	}
	if want := c.Params["providerAddresses"]; want != "" && !slices.ContainsFunc(strings.Split(want, ","), provider.isAt) {
		return false
	}
	return (c.everywhere() || c.Host == provider.Host) && (c.Port == 0 || c.Port == provider.Port) &&
		matchesValue("application", provider.Application)
}

// isAt reports whether an address is that of p.
func (p Provider) isAt(address string) bool {
	host, port, err := SplitAddress(address)
	return err == nil && host == p.Host && port == p.Port
}

// Configure applies rules to providers. A rule for one address wins over those for all, then the higher priority wins;
// the order of rules does not matter.
func Configure(providers []Provider, rules []Configurator) []Provider {
	if len(rules) == 0 {
		return providers
	}
	forOne := func(c Configurator) string { return strconv.FormatBool(!c.everywhere()) }
	rules = slices.SortedFunc(slices.Values(rules), func(first, second Configurator) int {
		return cmp.Or(cmp.Compare(forOne(first), forOne(second)),
			cmp.Compare(number64(first.Params["priority"]), number64(second.Params["priority"])),
			cmp.Compare(first.Host, second.Host), cmp.Compare(first.Port, second.Port),
			cmp.Compare(milliseconds(first.Params["timestamp"]), milliseconds(second.Params["timestamp"])),
			cmp.Compare(first.Params["weight"], second.Params["weight"]),
			cmp.Compare(first.Params["disabled"], second.Params["disabled"]))
	})
	configured := slices.Clone(providers)
	for i, provider := range configured {
		params := provider.Params
		for _, rule := range rules {
			if rule.matches(provider) {
				params = rule.apply(params)
				if _, says := rule.Params["disabled"]; says && rule.Protocol != "absent" {
					configured[i].SwitchedOff = false
				}
			}
		}
		configured[i].Params = params
	}
	return configured
}

func number64(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func (c Configurator) apply(params map[string]string) map[string]string {
	params = maps.Clone(params)
	if params == nil {
		params = map[string]string{}
	}
	for _, key := range []string{"weight", "disabled"} { // enabled is about the rule itself
		value, ok := c.Params[key]
		if _, exists := params[key]; !ok || exists && c.Protocol == "absent" {
			continue
		}
		params[key] = value
		if key == "weight" {
			params[configuredParam] = "true"
		}
	}
	return params
}
