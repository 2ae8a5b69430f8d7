package access

import (
	"net/netip"
	"slices"

	"tributary/server/identity"
)

// Match says which clients a rule applies to: one entry of each non-empty list. Empty matches all.
type Match struct {
	SPIFFE  []string // URIs of the certificate
	DNS     []string // DNS names of the certificate
	Subject []string // subjects of the certificate
	CIDR    []netip.Prefix
	Socket  bool // the connection uses a unix socket
	Token   []string
	JWT     *JWT
	Nodes   []string // node IDs, which prove no identity: they only narrow the match
}

// JWT matches the claims of a JWT.
type JWT struct{ Issuer, Subject, Audience []string }

// properties returns the properties of a client, without its node ID, in the form of a match.
func properties(client *identity.Identity) *Match {
	match := &Match{
		SPIFFE: client.URIs, DNS: client.DNS, Subject: present(client.Subject), Token: present(client.Token),
		Socket: client.Socket,
	}
	if client.Address.IsValid() {
		match.CIDR = []netip.Prefix{netip.PrefixFrom(client.Address, client.Address.BitLen())}
	}
	if token := client.JWT; token != nil {
		match.JWT = &JWT{[]string{token.Issuer}, []string{token.Subject}, token.Audience}
	}
	return match
}

func present(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// Subsumes reports whether m matches each client that second matches: after m, a rule for second decides no client.
func (m *Match) Subsumes(second *Match) bool {
	return m.covers(second, allValues) && compare(m.Nodes, second.Nodes, matches, allValues)
}

// covers compares the match with the properties of clients, except for node IDs.
func (m *Match) covers(second *Match, required quantity) bool {
	contains := func(network, part netip.Prefix) bool {
		return network.Bits() <= part.Bits() && network.Contains(part.Addr())
	}
	return compare(m.SPIFFE, second.SPIFFE, matches, required) && compare(m.DNS, second.DNS, matches, required) &&
		compare(m.Subject, second.Subject, matchSubject, required) && compare(m.CIDR, second.CIDR, contains, required) &&
		compare(m.Token, second.Token, matches, required) && (!m.Socket || second.Socket) &&
		m.JWT.covers(second.JWT, required)
}

func (j *JWT) covers(second *JWT, required quantity) bool {
	return j == nil || second != nil && compare(j.Issuer, second.Issuer, matches, required) &&
		compare(j.Subject, second.Subject, matches, required) && compare(j.Audience, second.Audience, matches, required)
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

// Find returns the rule of a client with a node ID, or nil.
func (rules Rules) Find(client *identity.Identity, node string) *Rule {
	index := slices.IndexFunc(rules, func(rule Rule) bool {
		return rule.Match.covers(properties(client), anyValue) && admits(rule.Match.Nodes, node)
	})
	if index < 0 {
		return nil
	}
	return &rules[index]
}

// admit reports whether a rule matches the client with some node ID.
func (rules Rules) admit(client *identity.Identity) bool {
	return rules == nil || slices.ContainsFunc(rules, func(rule Rule) bool {
		return rule.Match.covers(properties(client), anyValue)
	})
}
