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

	statTCP     = "tcp."
	shadowAsked = "istio_ext_authz_" // of requests for which a provider is asked

	deniedSuffix = "-deny-due-to-bad-CUSTOM-action"
)

// askedPrefix is that of the names of rules about which a provider is asked.
func askedPrefix(provider string) string { return "istio-ext-authz-" + provider }

// builder translates the AuthorizationPolicies among objects.
type builder struct {
	Objects
	found *model.Findings
}

// rules are those of policies of one action; both are nil without policies.
type rules struct {
	enforced, shadow *rbacv3.RBAC
	prefix           string // of the statistics of shadow
}

// http returns the filter of requests.
func (r rules) http() *hcmv3.HttpFilter {
	return model.HTTPFilter(rbacHTTP, &rbachttpv3.RBAC{Rules: r.enforced, ShadowRules: r.shadow, ShadowRulesStatPrefix: r.prefix})
}

// tcp returns the filter of connections that are not HTTP.
func (r rules) tcp() *listenerv3.Filter {
	return model.NetworkFilter(rbacTCP, &rbactcpv3.RBAC{
		Rules: r.enforced, ShadowRules: r.shadow, ShadowRulesStatPrefix: r.prefix, StatPrefix: statTCP,
	})
}

// build translates policies of an action.
func (b *builder) build(policies []*model.AuthorizationPolicy, r ruleContext, action rbacv3.RBAC_Action) (out rules) {
	for _, p := range policies {
		into := &out.enforced
		if b.isDryRun(p) {
			into = &out.shadow
		}
		if *into == nil {
			*into = &rbacv3.RBAC{Action: action, Policies: make(map[string]*rbacv3.Policy)}
		}
		name := fmt.Sprintf("ns[%s]-policy[%s]-rule", p.Key.Namespace, p.Key.Name)
		if p.Spec.GetAction() == securityv1beta1.AuthorizationPolicy_CUSTOM {
			name = askedPrefix(p.Spec.GetProvider().GetName()) + "-" + name
		}
		if len(p.Spec.GetRules()) == 0 { // it matches nothing
			(*into).Policies[name+"[0]"] = &rbacv3.Policy{
				Permissions: []*permission{permissions.not(permissions.every)}, Principals: []*principal{principals.not(principals.every)},
			}
		}
		for i, rule := range p.Spec.GetRules() {
			r.builder, r.at = b, model.Place{Object: p.Key, Field: fmt.Sprintf("spec.rules[%d]", i)}
			switch policy, err := r.policyOf(rule); {
			case err == nil:
				(*into).Policies[fmt.Sprintf("%s[%d]", name, i)] = policy
			case !errors.Is(err, errHTTP):
				b.found.Note(r.at, "%v: the rule allows nothing", err)
			}
		}
	}
	out.prefix = shadowPrefixes[out.shadow.GetAction()]
	return out
}

// shadowPrefixes are those of the statistics of shadow rules. As with istiod, that of ALLOW is there without any.
var shadowPrefixes = map[rbacv3.RBAC_Action]string{rbacv3.RBAC_ALLOW: "istio_dry_run_allow_", rbacv3.RBAC_DENY: "istio_dry_run_deny_"}

func (b *builder) isDryRun(p *model.AuthorizationPolicy) bool {
	if p.DryRun == "" {
		return false
	}
	is, err := strconv.ParseBool(p.DryRun)
	if err != nil {
		b.found.Note(model.Place{Object: p.Key, Field: "metadata.annotations[" + model.DryRunAnnotation + "]"},
			"%v: the policy is enforced", err)
	}
	return is
}

// custom returns the filters that have a provider decide on requests and connections. What it cannot be asked about is denied.
func (b *builder) custom(policies []*model.AuthorizationPolicy) (http []*hcmv3.HttpFilter, tcp []*listenerv3.Filter) {
	var asking []*model.AuthorizationPolicy
	for _, p := range policies {
		if b.isDryRun(p) {
			b.found.Note(model.Place{Object: p.Key}, "a dry run asks no provider")
		} else {
			asking = append(asking, p)
		}
	}
	if len(asking) == 0 {
		return nil, nil
	}
	askHTTPFilter, askTCPFilter, why := authorizer(asking, b.Objects)
	asksHTTP, asksTCP := why == "", why == "" && askTCPFilter != nil
	onHTTP := b.build(asking, ruleContext{}, rbacv3.RBAC_DENY).enforced
	// A provider that speaks HTTP is asked about requests only: rules that are about these do not concern connections.
	onTCP := b.build(asking, ruleContext{tcp: true, strict: asksHTTP && !asksTCP}, rbacv3.RBAC_DENY).enforced
	if asksHTTP {
		http = append(http, rules{shadow: onHTTP, prefix: shadowAsked}.http(), model.HTTPFilter(askHTTP, askHTTPFilter))
	} else {
		http = append(http, rules{enforced: denied(onHTTP)}.http())
		why += ": what the rules match is denied"
	}
	switch {
	case asksTCP:
		tcp = append(tcp, rules{shadow: onTCP, prefix: shadowAsked}.tcp(), model.NetworkFilter(askTCP, askTCPFilter))
	case !asksHTTP || !b.Warn && len(onTCP.GetPolicies()) > 0:
		tcp = append(tcp, rules{enforced: denied(onTCP)}.tcp())
		why = cmp.Or(why, "it decides on requests only: connections that are not HTTP are closed if the rules match them")
	}
	for _, p := range asking {
		if why != "" {
			b.found.Note(model.Place{Object: p.Key, Field: "spec.provider"}, "%s", why)
		}
	}
	return http, tcp
}

// denied returns rules for which a provider should have been asked.
func denied(asked *rbacv3.RBAC) *rbacv3.RBAC {
	out := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: make(map[string]*rbacv3.Policy, len(asked.GetPolicies()))}
	for name, p := range asked.GetPolicies() {
		out.Policies[name+deniedSuffix] = p
	}
	return out
}
