package security

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"tributary/server/envoy/model"
)

// Names of filters, statistics and policies are istiod's.
const (
	rbacHTTP = "envoy.filters.http.rbac"
	rbacTCP  = "envoy.filters.network.rbac"

	statTCP         = "tcp."
	askedStatPrefix = "istio_ext_authz_" // of rules that ask a provider

	deniedSuffix = "-deny-due-to-bad-CUSTOM-action"
)

// askedPrefix is the prefix for names of rules that ask a provider.
func askedPrefix(provider string) string { return "istio-ext-authz-" + provider }

// builder translates AuthorizationPolicies.
type builder struct {
	Objects
	findings *model.Findings
}

// ruleSet has the rules of policies with one action; both are nil without policies.
type ruleSet struct {
	enforced, shadow *rbacv3.RBAC
	prefix           string // of the statistics of shadow
}

// httpFilter returns the filter for requests.
func (r ruleSet) httpFilter() *hcmv3.HttpFilter {
	return model.HTTPFilter(rbacHTTP, &rbachttpv3.RBAC{
		Rules: r.enforced, ShadowRules: r.shadow,
		ShadowRulesStatPrefix: r.prefix,
	})
}

// tcpFilter returns the filter for connections other than HTTP.
func (r ruleSet) tcpFilter() *listenerv3.Filter {
	return model.NetworkFilter(rbacTCP, &rbactcpv3.RBAC{
		Rules: r.enforced, ShadowRules: r.shadow, ShadowRulesStatPrefix: r.prefix, StatPrefix: statTCP,
	})
}

// build translates the policies of an action.
func (b *builder) build(policies []*model.AuthorizationPolicy, context ruleContext,
	action rbacv3.RBAC_Action,
) (result ruleSet) {
	for _, policy := range policies {
		target := &result.enforced
		if b.isDryRun(policy) {
			target = &result.shadow
		}
		if *target == nil {
			*target = &rbacv3.RBAC{Action: action, Policies: make(map[string]*rbacv3.Policy)}
		}
		name := fmt.Sprintf("ns[%s]-policy[%s]-rule", policy.Key.Namespace, policy.Key.Name)
		if policy.Spec.GetAction() == securityv1beta1.AuthorizationPolicy_CUSTOM {
			name = askedPrefix(policy.Spec.GetProvider().GetName()) + "-" + name
		}
		if len(policy.Spec.GetRules()) == 0 { // it matches no traffic
			(*target).Policies[name+"[0]"] = &rbacv3.Policy{
				Permissions: []*permission{permissions.negate(permissions.anything)},
				Principals:  []*principal{principals.negate(principals.anything)},
			}
		}
		for index, rule := range policy.Spec.GetRules() {
			context.builder, context.place = b, model.PlaceIn(policy.Key, "spec.rules[%d]", index)
			switch policy, err := context.translateRule(rule); {
			case err == nil:
				(*target).Policies[fmt.Sprintf("%s[%d]", name, index)] = policy
			case !errors.Is(err, errHTTP):
				b.findings.Note(context.place, "%v: the rule allows no traffic", err)
			}
		}
	}
	result.prefix = shadowPrefixes[result.shadow.GetAction()]
	return result
}

// shadowPrefixes are the prefixes for statistics of shadow rules. As in istiod, ALLOW has one even without such rules.
var shadowPrefixes = map[rbacv3.RBAC_Action]string{
	rbacv3.RBAC_ALLOW: "istio_dry_run_allow_",
	rbacv3.RBAC_DENY:  "istio_dry_run_deny_",
}

func (b *builder) isDryRun(policy *model.AuthorizationPolicy) bool {
	if policy.DryRun == "" {
		return false
	}
	dryRun, err := strconv.ParseBool(policy.DryRun)
	if err != nil {
		b.findings.Note(model.PlaceIn(policy.Key, "metadata.annotations[%s]", model.DryRunAnnotation),
			"%v: the policy is enforced", err)
	}
	return dryRun
}

// customFilters returns the filters that make a provider decide on requests and connections. They deny traffic that it
// cannot decide on.
func (b *builder) customFilters(policies []*model.AuthorizationPolicy) (http []*hcmv3.HttpFilter,
	filters []*listenerv3.Filter,
) {
	var askingPolicies []*model.AuthorizationPolicy
	for _, policy := range policies {
		if b.isDryRun(policy) {
			b.findings.Note(model.Place{Object: policy.Key}, "a dry run asks no provider")
		} else {
			askingPolicies = append(askingPolicies, policy)
		}
	}
	if len(askingPolicies) == 0 {
		return nil, nil
	}
	askHTTPFilter, askTCPFilter, problem := authorizer(askingPolicies, b.Objects)
	asksHTTP := problem == ""
	asksTCP := asksHTTP && askTCPFilter != nil
	onHTTP := b.build(askingPolicies, ruleContext{}, rbacv3.RBAC_DENY).enforced
	// A provider of HTTP decides on requests only: rules about these do not apply to connections.
	connections := ruleContext{tcp: true, onlyConnections: asksHTTP && !asksTCP}
	onTCP := b.build(askingPolicies, connections, rbacv3.RBAC_DENY).enforced
	if asksHTTP {
		http = append(http, ruleSet{shadow: onHTTP, prefix: askedStatPrefix}.httpFilter(),
			model.HTTPFilter(askHTTP, askHTTPFilter))
	} else {
		http = append(http, ruleSet{enforced: denyAsked(onHTTP)}.httpFilter())
		problem += ": traffic that the rules match is denied"
	}
	switch {
	case asksTCP:
		filters = append(filters, ruleSet{shadow: onTCP, prefix: askedStatPrefix}.tcpFilter(),
			model.NetworkFilter(askTCP, askTCPFilter))
	case !asksHTTP || !b.Warn && len(onTCP.GetPolicies()) > 0:
		filters = append(filters, ruleSet{enforced: denyAsked(onTCP)}.tcpFilter())
		problem = cmp.Or(problem,
			"it decides on requests only: connections that are not HTTP are closed if the rules match them")
	}
	for _, policy := range askingPolicies {
		if problem != "" {
			b.findings.Note(model.PlaceIn(policy.Key, "spec.provider"), "%s", problem)
		}
	}
	return http, filters
}

// denyAsked returns rules that deny traffic because no provider can decide on it.
func denyAsked(matched *rbacv3.RBAC) *rbacv3.RBAC {
	result := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: make(map[string]*rbacv3.Policy, len(matched.GetPolicies()))}
	for name, policy := range matched.GetPolicies() {
		result.Policies[name+deniedSuffix] = policy
	}
	return result
}
