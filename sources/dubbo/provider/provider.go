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
	Silent      bool // nobody has heard of it since the registry began anew: who was known stays, and who was not is none
	SwitchedOff bool // its registry has it take no calls, whatever its parameters say
}

// Levels are those at which something is registered.
type Levels uint8

// The levels.
const (
	OfInterfaces Levels = 1 << iota
	OfApplications
)

// ID is what Dubbo tells services apart by.
type ID struct {
	Interface string
	Group     string
	Version   string // empty for 0.0.0, which is what no version means
}

// String returns the ID as Dubbo writes it: group/interface:version.
func (id ID) String() string {
	s := id.Interface
	if id.Group != "" {
		s = id.Group + "/" + s
	}
	if id.Version != "" {
		s += ":" + id.Version
	}
	return s
}

// Compare orders IDs.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Interface, o.Interface), cmp.Compare(id.Group, o.Group), cmp.Compare(id.Version, o.Version))
}

func newID(iface, group, version string) ID {
	if version == "0.0.0" {
		version = ""
	}
	return ID{iface, group, version}
}

// Provider returns the provider that a URL registers. ok is false for what is no provider: consumers, rules, and the URL by which
// Dubbo says that there is none.
func (u URL) Provider() (p Provider, ok bool, err error) {
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
	p = Provider{
		ID:       newID(iface, u.Params["group"], u.Params["version"]),
		Protocol: u.Protocol, Host: u.Host, Port: u.Port, Path: cmp.Or(u.Path, iface),
		Application: u.Params["application"], Timestamp: milliseconds(u.Params["timestamp"]), Params: u.Params,
	}
	return p, true, p.check()
}

// Consumer is an application that calls services: those of a group and version of an interface, or several.
type Consumer struct {
	Application string
	ID          // the group may be several, with commas; * is any group, and any version
}

// wildcard is what a consumer has of a group or version if it takes all.
const wildcard = "*"

// Consumer returns the consumer that a URL registers, or false if it is none.
func (u URL) Consumer() (Consumer, bool) {
	c := Consumer{u.Params["application"], newID(cmp.Or(u.Params["interface"], u.Path), u.Params["group"], u.Params["version"])}
	return c, u.Protocol == "consumer" && c.Application != "" && c.Interface != ""
}

// Consumes reports whether the consumer calls a service.
func (c Consumer) Consumes(id ID) bool {
	return c.Interface == id.Interface && (c.Version == wildcard || c.Version == id.Version) &&
		(c.Group == wildcard || slices.Contains(strings.Split(c.Group, ","), id.Group))
}

// check refuses what cannot be called.
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

// milliseconds reads a timestamp, which dubbo-go writes in seconds.
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

// DefaultWeight is that of a provider that says nothing.
const DefaultWeight = 100

// maxWeight keeps sums of weights within what Envoy takes.
const maxWeight = 1_000_000

// Weight returns the share of calls that p is to have; 0 for none. A provider that is disabled has none.
func (p Provider) Weight() uint32 {
	if p.disabled() {
		return 0
	}
	text := p.Params["weight"]
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	switch {
	case err != nil: // as Dubbo does
		return DefaultWeight
	case p.silentOnWeight():
		return DefaultWeight
	case n <= 0:
		return 0
	}
	return uint32(min(n, maxWeight))
}

// Off says why p is to have no calls; empty if it is to have some.
func (p Provider) Off() string {
	switch {
	case p.disabled():
		return "disabled"
	case p.Weight() == 0:
		return "weight " + strings.TrimSpace(p.Params["weight"])
	}
	return ""
}

// silentOnWeight reports whether a weight is none: dubbo-go writes 0 where nothing was set.
func (p Provider) silentOnWeight() bool {
	return strings.TrimSpace(p.Params["weight"]) == "0" && p.golang() && !p.configured()
}

// disabled decides by what its registry says, and by the first of the two parameters that is there.
func (p Provider) disabled() bool {
	return p.SwitchedOff || flag(p.Params, "disabled", !flag(p.Params, "enabled", true))
}

// flag returns a parameter that is a truth value, which is the standard one where it says nothing.
func flag(params map[string]string, key string, standard bool) bool {
	if said := params[key]; said != "" {
		return names.IsTrue(said)
	}
	return standard
}

func (p Provider) golang() bool { return strings.HasPrefix(p.Params["release"], "dubbo-golang") }

// configuredParam marks, among parameters, that a configurator set the weight. It cannot be in a URL.
const configuredParam = "\x00configured"

func (p Provider) configured() bool { return p.Params[configuredParam] != "" }
