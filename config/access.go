package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"tributary/internal/process"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/access"
	"tributary/server/identity"
)

// Proofs says by what clients can prove who they are, in addition to certificates, which are for listen.xdsTLS.
type Proofs struct {
	// File of hashed tokens, as tributary token new writes it; read again when it changes. Relative paths are relative to this file.
	Tokens string `json:"tokens,omitempty"`
	// Whose JSON Web Tokens are taken.
	JWT []JWTIssuer `json:"jwt,omitempty"`
}

// JWTIssuer is somebody whose JWTs are taken.
type JWTIssuer struct {
	// Its name, as in the claim iss.
	Issuer string `json:"issuer"`
	// Names of which the claim aud has one: those of this server.
	Audiences []string `json:"audiences"`
	// File with its public keys (RFC 7517); read again when it changes. Relative paths are relative to this file.
	JWKS string `json:"jwks"`
	// By how much clocks may differ. Default: 30s.
	ClockSkew *Duration `json:"clockSkew,omitempty"`
}

// AccessRule says what some clients may see. The first rule whose who matches a client decides, alone.
type AccessRule struct {
	// For whom the rule is: each key that is given has to match, by one of its texts. Without any it is for everybody.
	Who AccessWho `json:"who,omitzero"`
	// What these may see. Without any key it is everything. A key that is not given limits nothing, but for services.
	Allow AccessAllow `json:"allow,omitzero"`
}

// AccessWho are the clients of a rule.
type AccessWho struct {
	// URIs of the client's certificate, such as spiffe://cluster.local/ns/prod/*; a * stands at the beginning or at the end, once, here and
	// below.
	SPIFFE []string `json:"spiffe,omitempty"`
	// DNS names of the client's certificate.
	DNS []string `json:"dns,omitempty"`
	// Subjects of the client's certificate, as in RFC 4514, such as CN=istiod,O=Example: the last name of the certificate comes first. They
	// are compared name by name: CN=* is any value, and * between commas is one or more names. A certificate with a SPIFFE ID and another
	// URI is refused.
	Subject []string `json:"subject,omitempty"`
	// Networks, or IP addresses, that the connection comes from.
	CIDR []string `json:"cidr,omitempty"`
	// The connection comes in by a unix socket.
	Socket bool `json:"socket,omitempty"`
	// Names of tokens of identity.tokens.
	Token []string `json:"token,omitempty"`
	// The client has a JWT of identity.jwt; of these, those that say what follows.
	JWT *AccessJWT `json:"jwt,omitempty"`
	// Ids of xDS nodes. Clients make them up: they narrow what another key says, and prove nothing.
	Node []string `json:"node,omitempty"`
}

// AccessJWT are the JWTs of a rule.
type AccessJWT struct {
	// The claim iss.
	Issuer []string `json:"issuer,omitempty"`
	// The claim sub.
	Subject []string `json:"subject,omitempty"`
	// One of the claim aud.
	Audience []string `json:"audience,omitempty"`
}

// AccessAllow is what a rule allows.
type AccessAllow struct {
	// Kinds of objects, such as ServiceEntry or se; a * stands at the beginning or at the end, once, here and below. What Envoys are told is
	// made of these alone.
	Kinds []string `json:"kinds,omitempty"`
	// Namespaces of objects; an empty text stands for the objects that have none.
	Namespaces []string `json:"namespaces,omitempty"`
	// Names of the sources that objects are from.
	Sources []string `json:"sources,omitempty"`
	// Types of Envoy: clusters, endpoints, listeners, routes, virtualHosts, secrets.
	Types []string `json:"types,omitempty"`
	// Other services than xDS: reflection and channelz of gRPC, csds and debug, which show what all clients are sent, and admin, to change
	// something on the admin server from another machine. Default: none; an empty `allow` grants everything.
	Services []string `json:"services,omitempty"`
}

// accessKey is the key of the rules. What is empty there is a mistake, and not without a limit: it may be what a template left of a list.
const (
	accessKey   = "access"
	emptyAccess = "empty; leave the key out if it is to say nothing"
)

const defaultClockSkew = Duration(30 * time.Second)

func (d *decoder) checkProofs(p *Proofs, dir string) {
	fileUnder(dir, &p.Tokens)
	for i := range p.JWT {
		is, key := &p.JWT[i], fmt.Sprintf("identity.jwt[%d]", i)
		switch {
		case is.Issuer == "":
			d.problem(key+".issuer", "missing")
		case len(is.Audiences) == 0 || slices.Contains(is.Audiences, ""):
			d.problem(key+".audiences", "name what the issuer calls this server: without, a token for any other server would do here")
		case is.JWKS == "":
			d.problem(key+".jwks", "missing; name a file with the issuer's public keys")
		case slices.ContainsFunc(p.JWT[:i], func(other JWTIssuer) bool { return other.Issuer == is.Issuer }):
			d.problem(key+".issuer", "%q is there twice", is.Issuer)
		}
		fileUnder(dir, &is.JWKS)
		if is.ClockSkew == nil {
			is.ClockSkew = new(defaultClockSkew)
		}
		if skew := time.Duration(*is.ClockSkew); skew < 0 || skew > 10*time.Minute {
			d.problem(key+".clockSkew", "want 0s to 10m, got %s", skew)
		}
	}
}

func (d *decoder) checkAccess(c *Config) {
	for i := range c.Access {
		rule, key := &c.Access[i], fmt.Sprintf("access[%d]", i)
		w, a := &rule.Who, &rule.Allow
		lists := map[string][]string{
			"who.spiffe": w.SPIFFE, "who.dns": w.DNS, "who.subject": w.Subject, "who.token": w.Token, "who.node": w.Node,
			"allow.kinds": a.Kinds, "allow.namespaces": a.Namespaces, "allow.sources": a.Sources, "allow.types": a.Types,
			"allow.services": a.Services,
		}
		if j := w.JWT; j != nil {
			lists["who.jwt.issuer"], lists["who.jwt.subject"], lists["who.jwt.audience"] = j.Issuer, j.Subject, j.Audience
		}
		for _, name := range sortedKeys(lists) {
			d.checkGlobs(key+"."+name, name, lists[name])
		}
		for n, one := range w.CIDR {
			if _, err := prefixOf(one); err != nil {
				d.problem(fmt.Sprintf("%s.who.cidr[%d]", key, n), "want a network such as 10.0.0.0/8, or an IP address, got %q", one)
			}
		}
		if len(w.Node) > 0 && len(w.SPIFFE)+len(w.DNS)+len(w.Subject)+len(w.CIDR)+len(w.Token) == 0 && w.JWT == nil && !w.Socket {
			d.problem(key+".who.node", "clients make up the ids of their nodes: also name something that they cannot make up, such as cidr")
		}
		d.checkNeeds(c, key+".who", w)
	}
}

func (d *decoder) checkGlobs(key, list string, globs []string) {
	names := map[string][]string{"allow.types": access.Types(), "allow.services": access.Services()}[list]
	for i, one := range globs {
		at := fmt.Sprintf("%s[%d]", key, i)
		_, known := resource.SchemaByName(one)
		check := access.CheckGlob
		if list == "who.subject" {
			check = access.CheckSubject
		}
		switch err := check(one); {
		case one == "" && list != "allow.namespaces":
			d.problem(at, "want a text")
		case err != nil:
			d.problem(at, "%v", err)
		case strings.Contains(one, "*"):
		case list == "allow.kinds" && !known:
			d.problem(at, "unknown kind %q%s", one, words.Suggestion(one, kindsNamed()))
		case names != nil && !slices.Contains(names, one):
			d.problem(at, "want %s, got %q", strings.Join(names, ", "), one)
		}
	}
}

// checkNeeds notes what a rule can never match.
func (d *decoder) checkNeeds(c *Config, key string, w *AccessWho) {
	certificates := c.Listen.XDSTLS != nil && c.Listen.XDSTLS.ClientCAs != ""
	switch {
	case len(w.SPIFFE)+len(w.DNS)+len(w.Subject) > 0 && !certificates:
		d.problem(key, "nobody shows a certificate without listen.xdsTLS.clientCAs")
	case len(w.Token) > 0 && c.Identity.Tokens == "":
		d.problem(key+".token", "there are no tokens without identity.tokens")
	case w.JWT != nil && len(c.Identity.JWT) == 0:
		d.problem(key+".jwt", "no JWT is taken without identity.jwt")
	}
}

func prefixOf(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err == nil && p.Addr().Is4In6() {
		return p, errors.New("an IPv4 network in IPv6")
	}
	return p, err
}

// Rules returns the rules of who may see what; nil if there are none.
func (c *Config) Rules() access.Rules {
	if c.Access == nil {
		return nil
	}
	rules := access.Rules{}
	for i := range c.Access {
		w, allow := &c.Access[i].Who, access.Allow(c.Access[i].Allow)
		allow.Kinds = slices.Clone(allow.Kinds)
		for i, name := range allow.Kinds {
			if schema, ok := resource.SchemaByName(name); ok {
				allow.Kinds[i] = string(schema.Kind)
			}
		}
		rule := access.Rule{
			Who: access.Who{
				SPIFFE: w.SPIFFE, DNS: slices.Clone(w.DNS), Subject: w.Subject, Socket: w.Socket, Token: w.Token,
				JWT: (*access.JWT)(w.JWT), Nodes: w.Node,
			},
			Allow: access.New(allow), Place: c.At(fmt.Sprintf("access[%d]", i)),
		}
		for i, name := range w.DNS {
			rule.Who.DNS[i] = strings.ToLower(name)
		}
		for _, one := range w.CIDR {
			if p, err := prefixOf(one); err == nil { // as was checked
				rule.Who.CIDR = append(rule.Who.CIDR, p)
			}
		}
		rules = append(rules, rule)
	}
	return rules
}

// dead warns of each rule that decides nothing, since one before it is for all whom it is for, and of each source that there is not.
func (d *decoder) dead(c *Config) {
	rules := c.Rules()
	sources := words.Each(c.ConfigSources, func(s Source) string { return s.Name })
	for i := range rules {
		key := fmt.Sprintf("access[%d]", i)
		if first := slices.IndexFunc(rules[:i], func(before access.Rule) bool { return before.Who.Covers(&rules[i].Who) }); first >= 0 {
			d.warn(key, "it decides nothing: access[%d] is for all whom it is for, and comes first", first)
		}
		for n, name := range c.Access[i].Allow.Sources {
			if !strings.Contains(name, "*") && !slices.Contains(sources, name) {
				d.warn(fmt.Sprintf("%s.allow.sources[%d]", key, n), "there is no source of the name %q%s", name, words.Suggestion(name, sources))
			}
		}
	}
}

func kindsNamed() (all []string) {
	for _, s := range resource.Schemas() {
		all = append(append(all, string(s.Kind), s.Plural), s.ShortNames...)
	}
	return all
}

// Settings are the proofs as they are taken; nil if there are none.
func (p *Proofs) Settings() *identity.Settings {
	if p.Tokens == "" && len(p.JWT) == 0 {
		return nil
	}
	s := &identity.Settings{Tokens: p.Tokens}
	for _, is := range p.JWT {
		s.Issuers = append(s.Issuers, identity.Issuer{
			Issuer: is.Issuer, Audiences: is.Audiences, JWKS: is.JWKS, ClockSkew: time.Duration(*is.ClockSkew),
		})
	}
	return s
}

// exposed warns of each listener by which others than this machine read everything, whoever they are.
func (d *decoder) exposed(c *Config) {
	if c.Access != nil {
		return
	}
	if l := c.Listen.XDS; l != ListenOff && reachable(l) {
		d.warn("listen.xds", "%s has no TLS and no access rules: anyone on the network can read everything (docs/security.md)", l)
	}
	if l := c.Listen.XDSTLS; l != nil && reachable(l.Address) && l.ClientAuth != ClientAuthRequire {
		d.warn("listen.xdsTLS.address", "%s has no access rules and does not require client certificates: anyone who reaches it can read "+
			"everything (docs/security.md)", l.Address)
	}
}

// reachable says whether others than this machine reach an address.
func reachable(address string) bool {
	if process.CheckAddress(address) != nil || strings.HasPrefix(address, "unix:") {
		return false
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil || strings.EqualFold(host, "localhost") {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}
