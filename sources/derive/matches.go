package derive

import (
	"cmp"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// match converts a match of an HTTPRoute or GRPCRoute. It returns false after having reported what makes the route worthless.
func (c *ruleConverter) match(m *match, i int) (*networking.HTTPMatchRequest, bool) {
	field := indexed(".matches[%d]", i)
	if c.route.unread(c.field + field) {
		c.refuse(field, "it has a condition that is not read")
		return nil, false
	}
	out := &networking.HTTPMatchRequest{}
	var ok bool
	if c.route.kind == "GRPCRoute" {
		if out.Uri, ok = c.grpcMethod(m.Method, field+".method"); !ok {
			return nil, false
		}
	} else {
		if out.Uri, ok = c.path(m, field+".path"); !ok {
			return nil, false
		}
		if m.Method != nil {
			out.Method = exact(m.Method.HTTP)
		}
	}
	if out.Headers, ok = c.values(m.Headers, field+".headers"); !ok {
		return nil, false
	}
	out.QueryParams, ok = c.values(m.QueryParams, field+".queryParams")
	return out, ok
}

func exact(text string) *networking.StringMatch {
	return &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: text}}
}

func prefix(text string) *networking.StringMatch {
	return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: text}}
}

func regex(text string) *networking.StringMatch {
	return &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: text}}
}

func (c *ruleConverter) path(m *match, field string) (*networking.StringMatch, bool) {
	kind, value := "PathPrefix", "/"
	if m.Path != nil {
		kind = cmp.Or(m.Path.Type, kind)
		if m.Path.Value != nil {
			value = *m.Path.Value
		}
	}
	switch kind {
	case "PathPrefix":
		if value != "/" {
			value = strings.TrimSuffix(value, "/")
		}
		return prefix(value), true
	case "Exact":
		return exact(value), true
	case "RegularExpression":
		return regex(value), true
	}
	c.refuse(field+".type", "%q is none of Exact, PathPrefix and RegularExpression", kind)
	return nil, false
}

// values converts matches of headers or of parameters.
func (c *ruleConverter) values(all []valueMatch, field string) (map[string]*networking.StringMatch, bool) {
	if len(all) == 0 {
		return nil, true
	}
	out := make(map[string]*networking.StringMatch, len(all))
	for i, v := range all {
		switch v.Type {
		case "Exact", "":
			out[v.Name] = exact(v.Value)
		case "RegularExpression":
			out[v.Name] = regex(v.Value)
		default:
			c.refuse(indexed("%s[%d].type", field, i), "%q is neither Exact nor RegularExpression", v.Type)
			return nil, false
		}
	}
	return out, true
}

// grpcMethod makes a match of the path of a gRPC call, which is "/service/method".
func (c *ruleConverter) grpcMethod(m *method, field string) (*networking.StringMatch, bool) {
	const any = "[^/]+"
	switch {
	case m == nil:
		return nil, true
	case m.Service == "" && m.Method == "":
		c.refuse(field, "neither service nor method is given")
		return nil, false
	case m.Type != "Exact" && m.Type != "" && m.Type != "RegularExpression":
		c.refuse(field+".type", "%q is neither Exact nor RegularExpression", m.Type)
		return nil, false
	case m.Service == "":
		return regex("/" + any + "/" + m.Method), true
	case m.Type == "RegularExpression":
		return regex("/" + m.Service + "/" + cmp.Or(m.Method, ".+")), true
	case m.Method == "":
		return prefix("/" + m.Service + "/"), true
	}
	return exact("/" + m.Service + "/" + m.Method), true
}
