package derive

import (
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// policies makes a DestinationRule for each Service that policies are about. Of several of one sort, the oldest counts.
func (d *derivation) policies() {
	type rule struct {
		of     []*object
		policy *networking.TrafficPolicy
	}
	rules := make(map[name]*rule)
	apply := func(o *object, targets []policyTarget, policy func(*networking.TrafficPolicy) bool) {
		for i, t := range targets {
			field := indexed("spec.targetRefs[%d]", i)
			switch {
			case t.Group != "" || t.Kind != "Service":
				d.report(o, field, "kind %s of %q is no Service: this target has no policy", t.Kind, t.Group)
				continue
			case d.missingService(o.Namespace, t.Name):
				d.report(o, field, "Service %s/%s does not exist: this target has no policy", o.Namespace, t.Name)
				continue
			case t.SectionName != "":
				d.report(o, field+".sectionName", "it is not read: the policy is for all ports of the Service")
			}
			target := name{o.Namespace, t.Name}
			if rules[target] == nil {
				rules[target] = &rule{policy: &networking.TrafficPolicy{}}
			}
			if !policy(rules[target].policy) {
				d.report(o, field, "Service %s/%s has an older policy of this kind, which counts", o.Namespace, t.Name)
				continue
			}
			rules[target].of = append(rules[target].of, o)
		}
	}
	for _, o := range d.all("BackendTLSPolicy") {
		spec := o.spec.(*tlsPolicySpec)
		tls := d.clientTLS(o, spec)
		apply(o, spec.TargetRefs, func(p *networking.TrafficPolicy) bool {
			if p.GetTls() != nil {
				return false
			}
			p.Tls = tls
			return true
		})
	}
	for _, o := range d.all("XBackendTrafficPolicy") {
		spec := o.spec.(*trafficPolicySpec)
		apply(o, spec.TargetRefs, func(p *networking.TrafficPolicy) bool {
			if p.GetLoadBalancer() != nil {
				return false
			}
			p.LoadBalancer = &networking.LoadBalancerSettings{}
			p.RetryBudget = retryBudget(spec)
			return true
		})
	}
	for target, r := range rules {
		d.add(resource.DestinationRule, target.namespace, target.name+"-"+generated, nil, &networking.DestinationRule{
			Host: d.serviceHost(target.namespace, target.name), TrafficPolicy: r.policy,
		}, r.of...)
	}
}

// clientTLS returns the TLS settings of a BackendTLSPolicy. ConfigMaps are not read: they are taken as they are named.
func (d *derivation) clientTLS(o *object, spec *tlsPolicySpec) *networking.ClientTLSSettings {
	v := &spec.Validation
	tls := &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, Sni: v.Hostname}
	for _, n := range v.SubjectAltNames {
		switch n.Type {
		case "Hostname":
			tls.SubjectAltNames = append(tls.SubjectAltNames, n.Hostname)
		case "URI":
			tls.SubjectAltNames = append(tls.SubjectAltNames, n.URI)
		}
	}
	const invalid = "invalid://" // with which nothing connects
	switch {
	case v.WellKnownCACertificates != nil:
		if *v.WellKnownCACertificates != "System" {
			d.report(o, "spec.validation.wellKnownCACertificates", "%q is not System, which is used", *v.WellKnownCACertificates)
		}
	case len(v.CACertificateRefs) > 0:
		const field = "spec.validation.caCertificateRefs"
		ref := &v.CACertificateRefs[0]
		if len(v.CACertificateRefs) > 1 {
			d.report(o, field, "there are %d, and only the first is used", len(v.CACertificateRefs))
		}
		if group, kind := ref.kindOf("", "ConfigMap"); group != "" || kind != "ConfigMap" {
			d.report(o, field+"[0]", "kind %s of %q is no ConfigMap: connections fail", kind, group)
			tls.CredentialName = invalid
		} else {
			tls.CredentialName = "configmap://" + o.Namespace + "/" + ref.Name
		}
	}
	return tls
}

func retryBudget(spec *trafficPolicySpec) *networking.TrafficPolicy_RetryBudget {
	r := spec.RetryConstraint
	if r == nil {
		return nil
	}
	budget := &networking.TrafficPolicy_RetryBudget{MinRetryConcurrency: 10} // the default of Gateway API
	if r.Budget != nil && r.Budget.Percent != nil {
		budget.Percent = wrapperspb.Double(*r.Budget.Percent)
	}
	if r.MinRetryRate != nil && r.MinRetryRate.Count != nil {
		budget.MinRetryConcurrency = *r.MinRetryRate.Count
	}
	return budget
}
