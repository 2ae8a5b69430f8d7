package provider

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tributary/internal/names"
)

// Provider is a service that can be called at an address.
type Provider struct {
	ID
	Protocol    string // dubbo, tri, rest…
	Host        string // an IP address, or a name
	Port        int
	Path        string // mostly that of the interface
	Application string
	Timestamp   int64 // when it was started, in milliseconds; 0 if unknown
	Params      map[string]string
	Levels      Levels
	Unverified  bool // not heard from since the registry restarted: a known one stays, an unknown one is not added
	SwitchedOff bool // disabled in the registry itself, whatever its parameters say
}

// Levels are the levels of a registration.
type Levels uint8

// The levels.
const (
	OfInterfaces Levels = 1 << iota
	OfApplications
)

// ID identifies a service of Dubbo.
type ID struct {
	Interface string
	Group     string
	Version   string // empty for 0.0.0, the absence of a version
}

// String returns the ID as Dubbo writes it: group/interface:version.
func (id ID) String() string {
	text := id.Interface
	if id.Group != "" {
		text = id.Group + "/" + text
	}
	if id.Version != "" {
		text += ":" + id.Version
	}
	return text
}

// Compare orders IDs.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Interface, o.Interface), cmp.Compare(id.Group, o.Group),
		cmp.Compare(id.Version, o.Version))
}

func newID(iface, group, version string) ID {
	if version == "0.0.0" {
		version = ""
	}
	return ID{iface, group, version}
}

// Provider returns the provider of a URL. ok is false for other URLs: consumers, rules, and Dubbo's marker of an empty
// list.
func (u URL) Provider() (provider Provider, ok bool, err error) {
	switch u.Protocol {
	case "empty", "override", "absent", "route", "router", "script", "condition", "consumer", "admin", "injvm":
		return Provider{}, false, nil
	}
	if c := u.Params["category"]; c != "" && !slices.Contains(strings.Split(c, ","), "providers") {
		return Provider{}, false, nil
	}
	if s := u.Params["side"]; s != "" && s != "provider" {
		return Provider{}, false, nil
	}
	iface := cmp.Or(u.Params["interface"], u.Path)
	provider = Provider{
		ID:       newID(iface, u.Params["group"], u.Params["version"]),
		Protocol: u.Protocol, Host: u.Host, Port: u.Port, Path: cmp.Or(u.Path, iface),
		Application: u.Params["application"], Timestamp: milliseconds(u.Params["timestamp"]), Params: u.Params,
	}
	return provider, true, provider.check()
}

// Consumer is an application that calls services: those of a group and version of an interface, or several.
type Consumer struct {
	Application string
	ID          // the group may be a list with commas; * is any group or version
}

// wildcard is a consumer's group or version that matches all.
const wildcard = "*"

// Consumer returns the consumer of a URL, or false if it is none.
func (u URL) Consumer() (Consumer, bool) {
	c := Consumer{u.Params["application"], newID(cmp.Or(u.Params["interface"], u.Path), u.Params["group"],
		u.Params["version"])}
	return c, u.Protocol == "consumer" && c.Application != "" && c.Interface != ""
}

// Consumes reports whether the consumer calls a service.
func (c Consumer) Consumes(id ID) bool {
	return c.Interface == id.Interface && (c.Version == wildcard || c.Version == id.Version) &&
		(c.Group == wildcard || slices.Contains(strings.Split(c.Group, ","), id.Group))
}

// check returns why a provider cannot be called, or nil.
func (p Provider) check() error {
	switch {
	case p.Interface == "":
		return fmt.Errorf("%s://%s:%d: it names no interface", p.Protocol, p.Host, p.Port)
	case p.Host == "":
		return fmt.Errorf("%s %s: it has no host", p.Protocol, p.ID)
	case p.Port <= 0 || p.Port > 65535:
		return fmt.Errorf("%s %s at %s: %d is no port to call", p.Protocol, p.ID, p.Host, p.Port)
	}
	return nil
}

// milliseconds parses a timestamp, which dubbo-go writes in seconds.
func milliseconds(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || n < 0:
		return 0
	case n < 100_000_000_000: // as milliseconds this would be before March 1973
		return n * 1000
	}
	return n
}

// DefaultWeight is the weight of a provider that sets none.
const DefaultWeight = 100

// maxWeight keeps sums of weights within Envoy's limit.
const maxWeight = 1_000_000

// Weight returns the share of calls of p; 0 if p is disabled.
func (p Provider) Weight() uint32 {
	if p.disabled() {
		return 0
	}
	text := p.Params["weight"]
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	switch {
	case err != nil: // as in Dubbo
		return DefaultWeight
	case p.weightUnset():
		return DefaultWeight
	case n <= 0:
		return 0
	}
	return uint32(min(n, maxWeight))
}

// Off says why p has no calls; empty if it has some.
func (p Provider) Off() string {
	switch {
	case p.disabled():
		return "disabled"
	case p.Weight() == 0:
		return "weight " + strings.TrimSpace(p.Params["weight"])
	}
	return ""
}

// weightUnset reports whether the weight means none: dubbo-go writes 0 if none is set.
func (p Provider) weightUnset() bool {
	return strings.TrimSpace(p.Params["weight"]) == "0" && p.isDubboGo() && !p.configured()
}

// disabled reports whether the registry or the parameters disable p. Of the parameters, disabled precedes enabled.
func (p Provider) disabled() bool {
	return p.SwitchedOff || flag(p.Params, "disabled", !flag(p.Params, "enabled", true))
}

// flag returns a boolean parameter, or standard if it is not set.
func flag(params map[string]string, key string, standard bool) bool {
	if flagText := params[key]; flagText != "" {
		return names.IsTrue(flagText)
	}
	return standard
}

func (p Provider) isDubboGo() bool { return strings.HasPrefix(p.Params["release"], "dubbo-golang") }

// configuredParam is a parameter that marks a weight as set by a configurator. No URL can contain it.
const configuredParam = "\x00configured"

func (p Provider) configured() bool { return p.Params[configuredParam] != "" }
