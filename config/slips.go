package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"tributary/internal/words"
	"tributary/sources/dubbo"
)

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
