package access

import (
	"slices"

	"tributary/server/identity"
)

// The properties of clients that rules match.
const (
	SPIFFE      = "spiffe"  // URIs of the certificate
	DNS         = "dns"     // DNS names of the certificate
	Subject     = "subject" // of the certificate
	CIDR        = "cidr"    // network or address of the connection
	Socket      = "socket"  // of a connection by a unix socket
	Token       = "token"   // name
	JWT         = "jwt"     // of each client with a JWT
	JWTIssuer   = "jwt.issuer"
	JWTSubject  = "jwt.subject"
	JWTAudience = "jwt.audience"
	Node        = "node" // node ID, which proves no identity: it only narrows the match
)

// Match says which clients a rule applies to: for each property with patterns, one pattern has to match. A match
// without patterns matches all clients.
type Match map[string][]string

// properties returns the properties that the identity of a client has: all but the node ID.
func properties(client *identity.Identity) Match {
	values := Match{SPIFFE: client.URIs, DNS: client.DNS}
	for property, value := range map[string]string{Subject: client.Subject, Token: client.Token} {
		if value != "" {
			values[property] = []string{value}
		}
	}
	if client.Socket {
		values[Socket] = []string{""}
	}
	if client.Address.IsValid() {
		values[CIDR] = []string{client.Address.String()}
	}
	if token := client.JWT; token != nil {
		values[JWT] = []string{""}
		values[JWTIssuer] = []string{token.Issuer}
		values[JWTSubject] = []string{token.Subject}
		values[JWTAudience] = token.Audience
	}
	return values
}

// Subsumes reports whether m matches each client that second matches: a rule with second, after one with m, is dead.
func (m Match) Subsumes(second Match) bool { return m.covers(second, allValues) }

// covers reports whether the values of each property match the patterns of m.
func (m Match) covers(values Match, required quantifier) bool {
	for property, patterns := range m {
		if !compare(patterns, values[property], matcher(property), required) {
			return false
		}
	}
	return true
}

// Rule gives rights to the clients that it matches.
type Rule struct {
	Match  Match
	Rights *Rights
	Place  string // in the configuration, for messages
}

// Rules are the access rules of a configuration. The first match decides. Nil rules allow everything to all clients;
// with rules, a client without a match has no rights.
type Rules []Rule

// Find returns the rule of a client with a node ID, or nil. Nil rules have one that allows everything.
func (rules Rules) Find(client *identity.Identity, node string) *Rule {
	if rules == nil {
		return &Rule{}
	}
	values := properties(client)
	values[Node] = []string{node}
	for i := range rules {
		if rules[i].Match.covers(values, anyValue) {
			return &rules[i]
		}
	}
	return nil
}

// admit reports whether a rule matches the client with some node ID.
func (rules Rules) admit(client *identity.Identity) bool {
	if rules == nil {
		return true
	}
	values := properties(client)
	return slices.ContainsFunc(rules, func(rule Rule) bool {
		values[Node] = rule.Match[Node] // each pattern matches itself
		return rule.Match.covers(values, anyValue)
	})
}
