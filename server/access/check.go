package access

import (
	"fmt"

	"tributary/server/identity"
)

// Query asks for the rights of a client. Content has the values of the properties "kind", "namespace", "source", "type"
// and "service"; a property without a value is not checked.
type Query struct {
	Client  *identity.Identity
	Node    string
	Content map[string]string
}

// Check answers a query, and explains the answer by the rule that decides.
func (rules Rules) Check(query Query) (allowed bool, explanation string) {
	if rules == nil {
		return true, "allowed: the configuration has no access"
	}
	rule := rules.Find(query.Client, query.Node)
	if other := rules.findByAudience(query); other != rule {
		return false, fmt.Sprintf("not known: the audience of the token decides whether %s applies: "+
			"give it as audience:NAME, too", other.Place)
	}
	if rule == nil {
		return false, "not allowed: no rule is for " + query.Client.String()
	}
	p := rule.Rights.get()
	patterns := map[string][]string{"kind": p.Kinds, "namespace": p.Namespaces, "source": p.Sources, "type": p.Types}
	for _, property := range []string{"kind", "namespace", "source", "type", "service"} {
		value, isQueried := query.Content[property]
		permitted := admits(patterns[property], value)
		if property == "service" {
			permitted = rule.Rights.AllowsService(value)
		}
		if isQueried && !permitted {
			return false, fmt.Sprintf("not allowed: %s decides, which does not have %s %q", rule.Place, property, value)
		}
	}
	return true, "allowed by " + rule.Place
}

// findByAudience returns the rule for a client whose token has every audience that rules name. If the query names
// audiences, it returns the rule for these.
func (rules Rules) findByAudience(query Query) *Rule {
	client := query.Client
	if client.JWT != nil && len(client.JWT.Audience) == 0 {
		token := *client.JWT
		for _, rule := range rules {
			token.Audience = append(token.Audience, rule.Match[JWTAudience]...)
		}
		withAudiences := *client
		withAudiences.JWT = &token
		client = &withAudiences
	}
	return rules.Find(client, query.Node)
}
