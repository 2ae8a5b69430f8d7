package access

import (
	"fmt"

	"tributary/resource"
	"tributary/server/identity"
)

// Question is what somebody may want to know of the rules: whether a client sees objects, or one of Envoy's types, or a service. What is
// nil or empty is not asked for.
type Question struct {
	Who       *identity.Identity
	Node      string
	Kind      resource.Kind
	Namespace *string
	Source    *string
	Type      string // by its short name
	Service   string
}

// Check answers a question: whether that is allowed, and, in words, which rule decides it.
func (rules Rules) Check(q Question) (allowed bool, why string) {
	if rules == nil {
		return true, "allowed: the configuration has no access"
	}
	rule, _ := rules.Of(q.Who, &q.Node)
	if rule == nil {
		return false, "not allowed: no rule is for " + q.Who.String()
	}
	a := rule.Allow
	denied := ""
	lists := []struct {
		what  string
		asked bool
		text  string
		list  func(*Allowed) globs
	}{
		{"kind", q.Kind != "", string(q.Kind), func(a *Allowed) globs { return a.kinds }},
		{"namespace", q.Namespace != nil, deref(q.Namespace), func(a *Allowed) globs { return a.namespaces }},
		{"source", q.Source != nil, deref(q.Source), func(a *Allowed) globs { return a.sources }},
		{"type", q.Type != "", q.Type, func(a *Allowed) globs { return a.types }},
	}
	for _, l := range lists {
		if a != nil && l.asked && l.list(a) != nil && !l.list(a).match(l.text) {
			denied = fmt.Sprintf("%s %q", l.what, l.text)
		}
	}
	if q.Service != "" && !a.Service(q.Service) {
		denied = fmt.Sprintf("service %q", q.Service)
	}
	if denied != "" {
		return false, fmt.Sprintf("not allowed: %s decides, which does not have %s", rule.Place, denied)
	}
	return true, "allowed by " + rule.Place
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
