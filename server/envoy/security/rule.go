package security

import (
	"errors"
	"fmt"
	"strings"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"tributary/server/envoy/model"
)

type (
	permission = rbacv3.Permission
	principal  = rbacv3.Principal
)

// form puts matchers together: Envoy has the same forms for permissions and for principals.
type form[M any] struct {
	all, any func([]*M) *M
	not      func(*M) *M
	every    func() *M
}

var permissions = form[permission]{
	all: func(l []*permission) *permission {
		return &permission{Rule: &rbacv3.Permission_AndRules{AndRules: &rbacv3.Permission_Set{Rules: l}}}
	},
	any: func(l []*permission) *permission {
		return &permission{Rule: &rbacv3.Permission_OrRules{OrRules: &rbacv3.Permission_Set{Rules: l}}}
	},
	not:   func(m *permission) *permission { return &permission{Rule: &rbacv3.Permission_NotRule{NotRule: m}} },
	every: func() *permission { return &permission{Rule: &rbacv3.Permission_Any{Any: true}} },
}

var principals = form[principal]{
	all: func(l []*principal) *principal {
		return &principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: l}}}
	},
	any: func(l []*principal) *principal {
		return &principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: l}}}
	},
	not:   func(m *principal) *principal { return &principal{Identifier: &rbacv3.Principal_NotId{NotId: m}} },
	every: func() *principal { return &principal{Identifier: &rbacv3.Principal_Any{Any: true}} },
}

// condition is one on an attribute: it has one of the values, and none of notValues. Either may be empty.
type condition[M any] struct {
	attribute[M]
	key               string
	values, notValues []string
}

// ruleContext is what a rule is translated for.
type ruleContext struct {
	*builder
	tcp       bool   // connections that are not HTTP
	strict    bool   // a rule with a condition that cannot be translated is left out; else the rule applies without that condition
	namespace string // of the policy
	at        model.Place
}

// all returns what matches all conditions, some of which may be empty.
func all[M any](f form[M], r *ruleContext, conditions []condition[M]) (*M, error) {
	var parts []*M
	for _, c := range conditions {
		for _, part := range []struct {
			values []string
			form   func(*M) *M
		}{{c.values, func(m *M) *M { return m }}, {c.notValues, f.not}} {
			if len(part.values) == 0 {
				continue
			}
			m, err := c.of(f, r, c.key, part.values)
			if err != nil && !errors.Is(err, errHTTP) {
				err = fmt.Errorf("%s: %w", c.key, err)
			}
			switch {
			case err == nil:
				parts = append(parts, part.form(m))
			case r.strict:
				return nil, err
			case !errors.Is(err, errHTTP):
				r.found.Note(r.at, "%v: the rule applies whatever the value is", err)
			}
		}
	}
	if len(parts) == 0 {
		parts = append(parts, f.every())
	}
	return f.all(parts), nil
}

// Keys of conditions that have a name in brackets.
const (
	headersKey  = "request.headers"
	claimsKey   = "request.auth.claims"
	metadataKey = "experimental.envoy.filters."
)

// when returns the conditions of a rule that stand for themselves.
func when(r *securityv1beta1.Rule) (to []condition[permission], from []condition[principal]) {
	for _, c := range r.GetWhen() {
		key, _, _ := strings.Cut(c.GetKey(), "[")
		if strings.HasPrefix(key, metadataKey) {
			key = metadataKey
		}
		if a, known := permissionsOf[key]; known && strings.Contains(key, ".") {
			to = append(to, condition[permission]{a, c.GetKey(), c.GetValues(), c.GetNotValues()})
		} else if a, known := principalsOf[key]; known {
			from = append(from, condition[principal]{a, c.GetKey(), c.GetValues(), c.GetNotValues()})
		} else {
			from = append(from, condition[principal]{unknown, c.GetKey(), []string{""}, nil}) // also without values
		}
	}
	return to, from
}

var unknown = attribute[principal]{one: func(*ruleContext, string, string) (*principal, error) {
	return nil, errors.New("it is unknown")
}}

// policyOf translates a rule.
func (r *ruleContext) policyOf(rule *securityv1beta1.Rule) (*rbacv3.Policy, error) {
	if r.strict && hasUnknown(rule) {
		return nil, errors.New("it has fields that this version does not know")
	}
	p := &rbacv3.Policy{}
	whenTo, whenFrom := when(rule)
	for _, to := range atLeastOne(rule.GetTo()) {
		o := to.GetOperation()
		m, err := all(permissions, r, append([]condition[permission]{
			{permissionsOf["hosts"], "hosts", o.GetHosts(), o.GetNotHosts()},
			{permissionsOf["methods"], "methods", o.GetMethods(), o.GetNotMethods()},
			{permissionsOf["paths"], "paths", o.GetPaths(), o.GetNotPaths()},
			{permissionsOf["destination.port"], "ports", o.GetPorts(), o.GetNotPorts()},
		}, whenTo...))
		if err != nil {
			return nil, err
		}
		p.Permissions = append(p.Permissions, m)
	}
	for _, from := range atLeastOne(rule.GetFrom()) {
		s := from.GetSource()
		m, err := all(principals, r, append([]condition[principal]{
			{principalsOf["source.principal"], "principals", s.GetPrincipals(), s.GetNotPrincipals()},
			{principalsOf["request.auth.principal"], "requestPrincipals", s.GetRequestPrincipals(), s.GetNotRequestPrincipals()},
			{principalsOf["source.serviceAccount"], "serviceAccounts", s.GetServiceAccounts(), s.GetNotServiceAccounts()},
			{principalsOf["source.namespace"], "namespaces", s.GetNamespaces(), s.GetNotNamespaces()},
			{principalsOf["source.trustDomain"], "trustDomains", s.GetTrustDomains(), s.GetNotTrustDomains()},
			{principalsOf["remote.ip"], "remoteIpBlocks", s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks()},
			{principalsOf["source.ip"], "ipBlocks", s.GetIpBlocks(), s.GetNotIpBlocks()},
		}, whenFrom...))
		if err != nil {
			return nil, err
		}
		p.Principals = append(p.Principals, m)
	}
	if why := model.Refused(p); why != "" {
		if r.strict {
			return nil, errors.New(why)
		}
		r.found.Note(r.at, "%s: the rule applies to everything", why)
		p = &rbacv3.Policy{Permissions: []*permission{permissions.every()}, Principals: []*principal{principals.every()}}
	}
	return p, nil
}

// atLeastOne returns the parts of a rule, or an empty one without conditions.
func atLeastOne[M any](parts []*M) []*M {
	if len(parts) == 0 {
		return []*M{nil}
	}
	return parts
}

// hasUnknown says whether a message has fields of a newer version.
func hasUnknown(m proto.Message) (has bool) {
	model.Visit(m, func(m proto.Message, _ bool) { has = has || len(m.ProtoReflect().GetUnknown()) > 0 })
	return has
}

// claim matches a claim of a token.
func claim(name string, m *matcherv3.StringMatcher) *principal {
	metadata := &matcherv3.MetadataMatcher{
		Filter: model.TokenFilter, Path: pathOf(model.TokenPayload, name),
		Value: &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: m}},
	}
	return &principal{Identifier: &rbacv3.Principal_Metadata{Metadata: metadata}} //nolint:staticcheck // as istiod
}

func pathOf(keys ...string) (path []*matcherv3.MetadataMatcher_PathSegment) {
	for _, k := range keys {
		path = append(path, &matcherv3.MetadataMatcher_PathSegment{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: k}})
	}
	return path
}
