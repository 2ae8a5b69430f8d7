package access

import (
	"net/netip"
	"slices"

	"tributary/server/identity"
)

// Who is whom a rule is for: each list that is not empty has to match, by one of its texts. All being empty, it is for everybody.
type Who struct {
	SPIFFE  []string // of the certificate: its URIs
	DNS     []string // of the certificate: its DNS names
	Subject []string // of the certificate
	CIDR    []netip.Prefix
	Socket  bool // comes in by a unix socket
	Token   []string
	JWT     *JWT
	Nodes   []string // ids that clients give themselves: they narrow, and prove nothing
}

// JWT is what a JWT has to say.
type JWT struct{ Issuer, Subject, Audience []string }

// matches says whether the rule is for a client. Without a node, it is not for one of which it wants to know the id; maybe says that it may
// be.
func (w *Who) matches(i *identity.Identity, node *string) (sure, maybe bool) {
	ok := (len(w.SPIFFE) == 0 || globs(w.SPIFFE).matchAny(i.URIs)) &&
		(len(w.DNS) == 0 || globs(w.DNS).matchAny(i.DNS)) &&
		(len(w.Subject) == 0 || i.Subject != "" && subjects(w.Subject).match(i.Subject)) &&
		(len(w.Token) == 0 || i.Token != "" && globs(w.Token).match(i.Token)) &&
		(len(w.CIDR) == 0 || slices.ContainsFunc(w.CIDR, func(p netip.Prefix) bool { return p.Contains(i.Address) })) &&
		(!w.Socket || i.Socket) &&
		w.JWT.matches(i.JWT)
	switch {
	case !ok || len(w.Nodes) == 0:
		return ok, ok
	case node == nil:
		return false, true
	}
	ok = globs(w.Nodes).match(*node)
	return ok, ok
}

// Covers says whether w matches every client that other does: after w, a rule for other decides nothing.
func (w *Who) Covers(other *Who) bool {
	within := func(p netip.Prefix) bool {
		return slices.ContainsFunc(w.CIDR, func(mine netip.Prefix) bool { return mine.Bits() <= p.Bits() && mine.Contains(p.Addr()) })
	}
	return limit(w.SPIFFE, other.SPIFFE) && limit(w.DNS, other.DNS) &&
		(len(w.Subject) == 0 || len(other.Subject) > 0 && subjects(w.Subject).cover(other.Subject)) && limit(w.Token, other.Token) &&
		limit(w.Nodes, other.Nodes) && (!w.Socket || other.Socket) && w.JWT.covers(other.JWT) &&
		(len(w.CIDR) == 0 || len(other.CIDR) > 0 && !slices.ContainsFunc(other.CIDR, func(p netip.Prefix) bool { return !within(p) }))
}

// limit says whether a list, without which nothing is limited, limits no more than another one.
func limit(mine, others []string) bool {
	return len(mine) == 0 || len(others) > 0 && globs(mine).cover(others)
}

func (j *JWT) covers(other *JWT) bool {
	if j == nil || other == nil {
		return j == nil
	}
	return limit(j.Issuer, other.Issuer) && limit(j.Subject, other.Subject) && limit(j.Audience, other.Audience)
}

func (j *JWT) matches(said *identity.JWT) bool {
	return j == nil || said != nil &&
		(len(j.Issuer) == 0 || globs(j.Issuer).match(said.Issuer)) &&
		(len(j.Subject) == 0 || globs(j.Subject).match(said.Subject)) &&
		(len(j.Audience) == 0 || globs(j.Audience).matchAny(said.Audience))
}

// Rule allows something to somebody.
type Rule struct {
	Who   Who
	Allow *Allowed
	Place string // in the configuration, for people
}

// Rules are those of a configuration, of which the first that matches decides. Nil rules allow everything to everybody; and if there are
// some, who matches none is allowed nothing.
type Rules []Rule

// Of returns the rule for a client, or nil. Node is the id that it gives itself, or nil if that is not known yet: then undecided says that
// it may change what the rule is.
func (rules Rules) Of(i *identity.Identity, node *string) (rule *Rule, undecided bool) {
	for n := range rules {
		sure, maybe := rules[n].Who.matches(i, node)
		if sure {
			return &rules[n], undecided
		}
		undecided = undecided || maybe
	}
	return nil, undecided
}
