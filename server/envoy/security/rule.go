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

// matcherForm combines the matchers of attributes. Envoy has the same operators for permissions and for principals.
type matcherForm[M any] struct {
	httpOnly     map[string]bool // by attribute
	match        func(r *ruleContext, key, value string) *M
	matchValues  func(r *ruleContext, key string, values []string) *M
	allOf, anyOf func([]*M) *M
	negate       func(*M) *M
	anything     *M
}

var permissions = matcherForm[permission]{
	httpOnly: permissionKeys, match: matchPermission, matchValues: matchPermissions,
	allOf: func(l []*permission) *permission {
		return &permission{Rule: &rbacv3.Permission_AndRules{AndRules: &rbacv3.Permission_Set{Rules: l}}}
	},
	anyOf: func(l []*permission) *permission {
		return &permission{Rule: &rbacv3.Permission_OrRules{OrRules: &rbacv3.Permission_Set{Rules: l}}}
	},
	negate:   func(m *permission) *permission { return &permission{Rule: &rbacv3.Permission_NotRule{NotRule: m}} },
	anything: &permission{Rule: &rbacv3.Permission_Any{Any: true}},
}

var principals = matcherForm[principal]{
	httpOnly: principalKeys, match: matchPrincipal, matchValues: matchPrincipals,
	allOf: allPrincipals, anyOf: anyPrincipal,
	negate:   func(m *principal) *principal { return &principal{Identifier: &rbacv3.Principal_NotId{NotId: m}} },
	anything: &principal{Identifier: &rbacv3.Principal_Any{Any: true}},
}

func allPrincipals(l []*principal) *principal {
	return &principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: l}}}
}

func anyPrincipal(l []*principal) *principal {
	return &principal{Identifier: &rbacv3.Principal_OrIds{OrIds: &rbacv3.Principal_Set{Ids: l}}}
}

// condition requires one of the values of an attribute, and none of notValues. Either may be empty.
type condition struct {
	key               string
	values, notValues []string
}

// ruleContext has the settings for the translation of a rule.
type ruleContext struct {
	*builder
	tcp bool // for connections other than HTTP
	// strict drops a rule with an untranslatable condition, so that it allows no traffic. Otherwise the rule applies
	// without that condition.
	strict bool
	// onlyConnections drops alternatives about requests.
	onlyConnections bool
	place           model.Place
}

var errHTTP = errors.New("only requests have it")

// matchAll returns a matcher for the conjunction of conditions.
func (f matcherForm[M]) matchAll(rule *ruleContext, conditions []condition) (*M, error) {
	var parts []*M
	for _, condition := range conditions {
		for index, values := range [][]string{condition.values, condition.notValues} {
			switch matched, err := f.matchAttribute(rule, condition.key, values); {
			case matched != nil && index == 1:
				parts = append(parts, f.negate(matched))
			case matched != nil:
				parts = append(parts, matched)
			case err != nil && (rule.strict || rule.onlyConnections && errors.Is(err, errHTTP)):
				return nil, fmt.Errorf("%s: %w", condition.key, err)
			case err != nil && !errors.Is(err, errHTTP):
				rule.findings.Note(rule.place, "%s: %v: the rule applies whatever the value is", condition.key, err)
			}
		}
	}
	if len(parts) == 0 {
		parts = append(parts, f.anything)
	}
	return f.allOf(parts), nil
}

// matchAttribute returns a matcher for any of the values of an attribute, or nil without values.
func (f matcherForm[M]) matchAttribute(rule *ruleContext, key string, values []string) (*M, error) {
	httpOnly, exists := f.httpOnly[attributeKey(key)]
	switch {
	case !exists:
		return nil, errors.New("it is unknown")
	case len(values) == 0:
		return nil, nil
	case httpOnly && rule.tcp:
		return nil, errHTTP
	}
	if err := checkValues(key, values); err != nil {
		return nil, err
	}
	matched := f.matchValues(rule, key, values)
	if matched == nil {
		var alternatives []*M
		for _, value := range values {
			alternatives = append(alternatives, f.match(rule, key, value))
		}
		matched = f.anyOf(alternatives)
	}
	if problem := rule.rejection(matched); problem != "" {
		return nil, errors.New(problem)
	}
	return matched, nil
}

// rejection returns the reason why Envoy would reject a matcher, or an empty text.
func (b *builder) rejection(message any) (problem string) {
	model.Visit(message.(proto.Message), func(part proto.Message, complete bool) { //nolint:forcetypeassert // of Envoy
		if expression, matches := part.(*matcherv3.RegexMatcher); matches {
			problem = cmp.Or(problem, model.RegexProblem(expression.GetRegex(), b.Client.LargestProgram()))
		}
		if validator, matches := part.(interface{ Validate() error }); matches && complete {
			problem = cmp.Or(problem, model.Refused(validator))
		}
	})
	return problem
}

// attributeKey returns the key of a condition without brackets.
func attributeKey(key string) string {
	if strings.HasPrefix(key, metadataKey) {
		return metadataKey
	}
	key, _, _ = strings.Cut(key, "[")
	return key
}

// translateRule translates a rule to an RBAC policy.
func (r *ruleContext) translateRule(rule *securityv1beta1.Rule) (*rbacv3.Policy, error) {
	if r.strict && hasUnknownFields(rule) {
		return nil, errors.New("it has fields that this version does not know")
	}
	var toConditions, fromConditions []condition
	for _, when := range rule.GetWhen() {
		added := condition{when.GetKey(), when.GetValues(), when.GetNotValues()}
		if _, isPermission := permissionKeys[attributeKey(added.key)]; isPermission &&
			strings.Contains(added.key, ".") {
			toConditions = append(toConditions, added)
		} else {
			fromConditions = append(fromConditions, added)
		}
	}
	policy := &rbacv3.Policy{}
	for _, to := range atLeastOne(rule.GetTo()) {
		operation := to.GetOperation()
		matched, err := permissions.matchAll(r, append([]condition{
			{"hosts", operation.GetHosts(), operation.GetNotHosts()},
			{"methods", operation.GetMethods(), operation.GetNotMethods()},
			{"paths", operation.GetPaths(), operation.GetNotPaths()},
			{"destination.port", operation.GetPorts(), operation.GetNotPorts()},
		}, toConditions...))
		if r.isDropped(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		policy.Permissions = append(policy.Permissions, matched)
	}
	for _, from := range atLeastOne(rule.GetFrom()) {
		source := from.GetSource()
		matched, err := principals.matchAll(r, append([]condition{
			{"source.principal", source.GetPrincipals(), source.GetNotPrincipals()},
			{"request.auth.principal", source.GetRequestPrincipals(), source.GetNotRequestPrincipals()},
			{"source.serviceAccount", source.GetServiceAccounts(), source.GetNotServiceAccounts()},
			{"source.namespace", source.GetNamespaces(), source.GetNotNamespaces()},
			{"source.trustDomain", source.GetTrustDomains(), source.GetNotTrustDomains()},
			{"remote.ip", source.GetRemoteIpBlocks(), source.GetNotRemoteIpBlocks()},
			{"source.ip", source.GetIpBlocks(), source.GetNotIpBlocks()},
		}, fromConditions...))
		if r.isDropped(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		policy.Principals = append(policy.Principals, matched)
	}
	if len(policy.GetPermissions()) == 0 || len(policy.GetPrincipals()) == 0 {
		return nil, errHTTP
	}
	return policy, nil
}

// isDropped reports whether an alternative with an error is dropped because it is about requests.
func (r *ruleContext) isDropped(err error) bool { return r.onlyConnections && errors.Is(err, errHTTP) }

// atLeastOne returns the parts of a rule, or an empty one without conditions.
func atLeastOne[M any](parts []*M) []*M {
	if len(parts) == 0 {
		return []*M{nil}
	}
	return parts
}

// hasUnknownFields reports whether a message has fields of a newer version.
func hasUnknownFields(message proto.Message) (unknown bool) {
	model.Visit(message, func(message proto.Message,
		_ bool,
	) {
		unknown = unknown || len(message.ProtoReflect().GetUnknown()) > 0
	})
	return unknown
}
