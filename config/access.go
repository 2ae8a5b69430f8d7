package config

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"tributary/internal/process"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/access"
	"tributary/server/identity"
)

// Proofs are the proofs of clients in addition to certificates, which listen.xdsTLS verifies.
type Proofs struct {
	// File of hashed tokens, as tributary token new writes it; read again when it changes. Relative paths are relative to
	// this file.
	Tokens string `json:"tokens,omitempty"`
	// Trusted issuers of JSON Web Tokens.
	JWT []JWTIssuer `json:"jwt,omitempty"`
}

// JWTIssuer is a trusted issuer of JWTs.
type JWTIssuer struct {
	// Its name, as in the claim iss.
	Issuer string `json:"issuer"`
	// Names of this server; the claim aud has one of them.
	Audiences []string `json:"audiences"`
	// File with its public keys (RFC 7517); read again when it changes. Relative paths are relative to this file.
	JWKS string `json:"jwks"`
	// Largest difference of the clocks. Default: 30s.
	ClockSkew *Duration `json:"clockSkew,omitempty"`
}

// AccessRule gives rights to some clients. The first rule that matches a client decides.
type AccessRule struct {
	// Clients of the rule: each key has to match, by one of its texts. Without a key, the rule matches each client.
	Who AccessWho `json:"who,omitzero"`
	// Content that these clients may read. A missing key has no limit, except for services; without a key, all is allowed.
	Allow AccessAllow `json:"allow,omitzero"`
}

// AccessWho are the clients of a rule.
type AccessWho struct {
	// URIs of the client's certificate, such as spiffe://cluster.local/ns/prod/*; a * stands at the beginning or at the
	// end, once, here and below.
	SPIFFE []string `json:"spiffe,omitempty"`
	// DNS names of the client's certificate.
	DNS []string `json:"dns,omitempty"`
	// Subjects of the client's certificate, as in RFC 4514, such as CN=istiod,O=Example: the last name of the certificate
	// comes first. They are compared name by name: CN=* is any value, and * between commas is one or more names. A
	// certificate with a SPIFFE ID and another URI is refused.
	Subject []string `json:"subject,omitempty"`
	// Networks, or IP addresses, that the connection comes from.
	CIDR []string `json:"cidr,omitempty"`
	// The connection uses a unix socket.
	Socket bool `json:"socket,omitempty"`
	// Names of tokens of identity.tokens.
	Token []string `json:"token,omitempty"`
	// The client has a JWT of identity.jwt with these claims.
	JWT *AccessJWT `json:"jwt,omitempty"`
	// IDs of xDS nodes. Clients choose them: they prove no identity, and only narrow another key.
	Node []string `json:"node,omitempty"`
}

// AccessJWT matches the claims of a JWT.
type AccessJWT struct {
	// The claim iss.
	Issuer []string `json:"issuer,omitempty"`
	// The claim sub.
	Subject []string `json:"subject,omitempty"`
	// One of the claim aud.
	Audience []string `json:"audience,omitempty"`
}

// AccessAllow are the permissions of a rule.
type AccessAllow struct {
	// Kinds of objects, such as ServiceEntry or se; a * stands at the beginning or at the end, once, here and below. The
	// resources for Envoys are made of these objects alone.
	Kinds []string `json:"kinds,omitempty"`
	// Namespaces of objects; an empty text stands for the objects that have none.
	Namespaces []string `json:"namespaces,omitempty"`
	// Names of the sources that objects are from.
	Sources []string `json:"sources,omitempty"`
	// Types of Envoy: clusters, endpoints, listeners, routes, virtualHosts, secrets.
	Types []string `json:"types,omitempty"`
	// Services other than xDS: reflection and channelz of gRPC; csds and debug, which show the resources of all clients;
	// and admin, for changes by the admin server from another machine. Default: none; an empty `allow` grants all.
	Services []string `json:"services,omitempty"`
}

// accessKey is the key of the rules. An empty list there is a mistake, for example of a template, and does not remove
// the limit.
const (
	accessKey   = "access"
	emptyAccess = "empty; leave the key out for no limit"
)

const defaultClockSkew = Duration(30 * time.Second)

func (d *decoder) checkProofs(proofs *Proofs, dir string) {
	absoluteFile(dir, &proofs.Tokens)
	for i := range proofs.JWT {
		issuer, key := &proofs.JWT[i], fmt.Sprintf("identity.jwt[%d]", i)
		switch {
		case issuer.Issuer == "":
			d.problem(key+".issuer", "missing")
		case len(issuer.Audiences) == 0 || slices.Contains(issuer.Audiences, ""):
			d.problem(key+".audiences", "name this server as the issuer does: without a name, a token for another server would be accepted")
		case issuer.JWKS == "":
			d.problem(key+".jwks", "missing; name a file with the issuer's public keys")
		case slices.ContainsFunc(proofs.JWT[:i], func(earlier JWTIssuer) bool { return earlier.Issuer == issuer.Issuer }):
			d.problem(key+".issuer", "%q is there twice", issuer.Issuer)
		}
		absoluteFile(dir, &issuer.JWKS)
		if issuer.ClockSkew == nil {
			issuer.ClockSkew = new(defaultClockSkew)
		}
		if skew := time.Duration(*issuer.ClockSkew); skew < 0 || skew > 10*time.Minute {
			d.problem(key+".clockSkew", "want 0s to 10m, got %s", skew)
		}
	}
}

// match returns the clients as patterns by property.
func (w *AccessWho) match() access.Match {
	match := access.Match{
		access.SPIFFE: w.SPIFFE, access.DNS: w.DNS, access.Subject: w.Subject, access.CIDR: w.CIDR, access.Token: w.Token,
		access.Node: w.Node,
	}
	if w.Socket {
		match[access.Socket] = []string{"*"}
	}
	if claims := w.JWT; claims != nil {
		match[access.JWT], match[access.JWTIssuer] = []string{"*"}, claims.Issuer
		match[access.JWTSubject], match[access.JWTAudience] = claims.Subject, claims.Audience
	}
	return match
}

func (d *decoder) checkAccess(config *Config) {
	for i := range config.Access {
		clients, allow, key := &config.Access[i].Who, &config.Access[i].Allow, fmt.Sprintf("access[%d]", i)
		properties := 0
		for property, patterns := range clients.match() {
			d.checkPatterns(key+".who."+property, property, patterns)
			properties += min(len(patterns), 1)
		}
		if len(clients.Node) > 0 && properties == 1 {
			d.problem(key+".who.node", "clients choose the IDs of their nodes: "+
				"add a key that clients cannot choose, such as cidr")
		}
		for property, patterns := range map[string][]string{
			"kinds": allow.Kinds, "namespaces": allow.Namespaces, "sources": allow.Sources, "types": allow.Types,
			"services": allow.Services,
		} {
			d.checkPatterns(key+".allow."+property, property, patterns)
		}
		d.checkNeeds(config, key+".who", clients)
	}
}

func (d *decoder) checkPatterns(key, property string, patterns []string) {
	names := map[string][]string{"types": access.Types(), "services": access.Services()}[property]
	for i, pattern := range patterns {
		position := fmt.Sprintf("%s[%d]", key, i)
		_, isKind := resource.SchemaByName(pattern)
		switch err := access.CheckPattern(property, pattern); {
		case pattern == "" && property != "namespaces":
			d.problem(position, "want a text")
		case err != nil:
			d.problem(position, "%v", err)
		case strings.Contains(pattern, "*"):
		case property == "kinds" && !isKind:
			d.problem(position, "unknown kind %q%s", pattern, words.Suggestion(pattern, kindNames()))
		case names != nil && !slices.Contains(names, pattern):
			d.problem(position, "want %s, got %q", strings.Join(names, ", "), pattern)
		}
	}
}

// checkNeeds reports keys that no client can match.
func (d *decoder) checkNeeds(config *Config, key string, accessWho *AccessWho) {
	certificates := config.Listen.XDSTLS != nil && config.Listen.XDSTLS.ClientCAs != ""
	switch {
	case len(accessWho.SPIFFE)+len(accessWho.DNS)+len(accessWho.Subject) > 0 && !certificates:
		d.problem(key, "no client has a verified certificate without listen.xdsTLS.clientCAs")
	case len(accessWho.Token) > 0 && config.Identity.Tokens == "":
		d.problem(key+".token", "there are no tokens without identity.tokens")
	case accessWho.JWT != nil && len(config.Identity.JWT) == 0:
		d.problem(key+".jwt", "no JWT is taken without identity.jwt")
	}
}

// Rules returns the access rules; nil if there are none.
func (c *Config) Rules() access.Rules {
	if c.Access == nil {
		return nil
	}
	rules := access.Rules{}
	for i := range c.Access {
		permissions := access.Permissions(c.Access[i].Allow)
		permissions.Kinds = slices.Clone(permissions.Kinds)
		for i, name := range permissions.Kinds {
			if schema, ok := resource.SchemaByName(name); ok {
				permissions.Kinds[i] = string(schema.Kind)
			}
		}
		rules = append(rules, access.Rule{
			Match: c.Access[i].Who.match(), Rights: access.NewRights(permissions), Place: c.At(fmt.Sprintf("access[%d]", i)),
		})
	}
	return rules
}

// warnDeadRules warns of rules that an earlier rule subsumes, and of sources that do not exist.
func (d *decoder) warnDeadRules(config *Config) {
	rules := config.Rules()
	sources := words.Each(config.ConfigSources, func(s Source) string { return s.Name })
	for i := range rules {
		key := fmt.Sprintf("access[%d]", i)
		if first := slices.IndexFunc(rules[:i],
			func(before access.Rule) bool { return before.Match.Subsumes(rules[i].Match) }); first >= 0 {
			d.warn(key, "the rule has no effect: access[%d] comes first and matches the same clients", first)
		}
		for n, name := range config.Access[i].Allow.Sources {
			if !strings.Contains(name, "*") && !slices.Contains(sources, name) {
				d.warn(fmt.Sprintf("%s.allow.sources[%d]", key, n), "there is no source of the name %q%s", name,
					words.Suggestion(name, sources))
			}
		}
	}
}

func kindNames() (names []string) {
	for _, s := range resource.Schemas() {
		names = append(append(names, string(s.Kind), s.Plural), s.ShortNames...)
	}
	return names
}

// Settings returns the settings of the authenticator; nil without proofs.
func (p *Proofs) Settings() *identity.Settings {
	if p.Tokens == "" && len(p.JWT) == 0 {
		return nil
	}
	settings := &identity.Settings{Tokens: p.Tokens}
	for _, issuer := range p.JWT {
		settings.Issuers = append(settings.Issuers, identity.Issuer{
			Issuer: issuer.Issuer, Audiences: issuer.Audiences, JWKS: issuer.JWKS, ClockSkew: time.Duration(*issuer.ClockSkew),
		})
	}
	return settings
}

// warnExposed warns of listeners that let each client on another machine read everything.
func (d *decoder) warnExposed(config *Config) {
	if config.Access != nil {
		return
	}
	if l := config.Listen.XDS; l != ListenOff && reachable(l) {
		d.warn("listen.xds", "%s has no TLS and no access rules: anyone on the network can read everything (docs/security.md)", l)
	}
	if l := config.Listen.XDSTLS; l != nil && reachable(l.Address) && l.ClientAuth != ClientAuthRequire {
		d.warn("listen.xdsTLS.address", "%s has no access rules and does not require client certificates: anyone who reaches it can read "+
			"everything (docs/security.md)", l.Address)
	}
}

// reachable reports whether other machines can reach an address.
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
