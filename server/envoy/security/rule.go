package security

import (
	"cmp"
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

// form has the attributes that matchers are made of, and puts them together: Envoy does that with permissions and with principals alike.
type form[M any] struct {
	attributes map[string]attribute[M]
	all, any   func([]*M) *M
	not        func(*M) *M
	every      *M
}

var permissions = form[permission]{
	attributes: permissionsOf,
	all: func(l []*permission) *permission {
		return &permission{Rule: &rbacv3.Permission_AndRules{AndRules: &rbacv3.Permission_Set{Rules: l}}}
	},
	any: func(l []*permission) *permission {
		return &permission{Rule: &rbacv3.Permission_OrRules{OrRules: &rbacv3.Permission_Set{Rules: l}}}
	},
	not:   func(m *permission) *permission { return &permission{Rule: &rbacv3.Permission_NotRule{NotRule: m}} },
	every: &permission{Rule: &rbacv3.Permission_Any{Any: true}},
}

var principals = form[principal]{
	attributes: principalsOf, all: allPrincipals, any: anyPrincipal,
	not:   func(m *principal) *principal { return &principal{Identifier: &rbacv3.Principal_NotId{NotId: m}} },
	every: &principal{Identifier: &rbacv3.Principal_Any{Any: true}},
}

func allPrincipals(l []*principal) *principal {
	return &principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: l}}}
}

func anyPrincipal(l []*principal) *principal {
	return &principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: l}}}
}

// condition is one on an attribute: it has one of the values, and none of notValues. Either may be empty.
type condition struct {
	key               string
	values, notValues []string
}

// ruleContext is what a rule is translated for.
type ruleContext struct {
	*builder
	tcp    bool // connections that are not HTTP
	strict bool // a rule with a condition that cannot be translated is left out; else the rule applies without that condition
	at     model.Place
}

var errHTTP = errors.New("only requests have it")

// matching returns what matches all conditions.
func (f form[M]) matching(r *ruleContext, conditions []condition) (*M, error) {
	var parts []*M
	for _, c := range conditions {
		for i, values := range [][]string{c.values, c.notValues} {
			switch m, err := f.matcher(r, c.key, values); {
			case m != nil && i == 1:
				parts = append(parts, f.not(m))
			case m != nil:
				parts = append(parts, m)
			case r.strict && err != nil:
				return nil, fmt.Errorf("%s: %w", c.key, err)
			case err != nil && !errors.Is(err, errHTTP):
				r.found.Note(r.at, "%s: %v: the rule applies whatever the value is", c.key, err)
			}
		}
	}
	if len(parts) == 0 {
		parts = append(parts, f.every)
	}
	return f.all(parts), nil
}

// matcher returns what matches any of the values of an attribute, or nil if there are none.
func (f form[M]) matcher(r *ruleContext, key string, values []string) (*M, error) {
	a, known := f.attributes[attributeOf(key)]
	switch {
	case !known:
		return nil, errors.New("it is unknown")
	case len(values) == 0:
		return nil, nil
	case a.http && r.tcp:
		return nil, errHTTP
	}
	if err := checkValues(key, values); err != nil {
		return nil, err
	}
	var m *M
	if a.some != nil {
		m = a.some(r, key, values)
	} else {
		var any []*M
		for _, v := range values {
			any = append(any, a.one(r, key, v))
		}
		m = f.any(any)
	}
	if why := r.refused(m); why != "" {
		return nil, errors.New(why)
	}
	return m, nil
}

// refused says why Envoy would refuse a matcher, or returns nothing.
func (b *builder) refused(m any) (why string) {
	model.Visit(m.(proto.Message), func(part proto.Message, whole bool) { //nolint:forcetypeassert // of a permission or a principal
		if re, is := part.(*matcherv3.RegexMatcher); is {
			why = cmp.Or(why, model.RegexProblem(re.GetRegex(), b.Client.LargestProgram()))
		}
		if v, is := part.(interface{ Validate() error }); is && whole {
			why = cmp.Or(why, model.Refused(v))
		}
	})
	return why
}

// attributeOf returns the key of a condition without what stands in brackets.
func attributeOf(key string) string {
	if strings.HasPrefix(key, metadataKey) {
		return metadataKey
	}
	key, _, _ = strings.Cut(key, "[")
	return key
}

// policyOf translates a rule.
func (r *ruleContext) policyOf(rule *securityv1beta1.Rule) (*rbacv3.Policy, error) {
	if r.strict && hasUnknown(rule) {
		return nil, errors.New("it has fields that this version does not know")
	}
	var whenTo, whenFrom []condition
	for _, w := range rule.GetWhen() {
		c := condition{w.GetKey(), w.GetValues(), w.GetNotValues()}
		if _, is := permissionsOf[attributeOf(c.key)]; is && strings.Contains(c.key, ".") {
			whenTo = append(whenTo, c)
		} else {
			whenFrom = append(whenFrom, c)
		}
	}
	p := &rbacv3.Policy{}
	for _, to := range atLeastOne(rule.GetTo()) {
		o := to.GetOperation()
		m, err := permissions.matching(r, append([]condition{
			{"hosts", o.GetHosts(), o.GetNotHosts()},
			{"methods", o.GetMethods(), o.GetNotMethods()},
			{"paths", o.GetPaths(), o.GetNotPaths()},
			{"destination.port", o.GetPorts(), o.GetNotPorts()},
		}, whenTo...))
		if err != nil {
			return nil, err
		}
		p.Permissions = append(p.Permissions, m)
	}
	for _, from := range atLeastOne(rule.GetFrom()) {
		s := from.GetSource()
		m, err := principals.matching(r, append([]condition{
			{"source.principal", s.GetPrincipals(), s.GetNotPrincipals()},
			{"request.auth.principal", s.GetRequestPrincipals(), s.GetNotRequestPrincipals()},
			{"source.serviceAccount", s.GetServiceAccounts(), s.GetNotServiceAccounts()},
			{"source.namespace", s.GetNamespaces(), s.GetNotNamespaces()},
			{"source.trustDomain", s.GetTrustDomains(), s.GetNotTrustDomains()},
			{"remote.ip", s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks()},
			{"source.ip", s.GetIpBlocks(), s.GetNotIpBlocks()},
		}, whenFrom...))
		if err != nil {
			return nil, err
		}
		p.Principals = append(p.Principals, m)
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
