package derive

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// policies makes a DestinationRule for each Service that policies are about. Of several of one kind, the oldest counts.
func (d *derivation) policies() {
	policies := make(map[resource.Key]*networking.TrafficPolicy) // by Service
	of := make(map[resource.Key][]*object)
	for _, o := range append(d.all("BackendTLSPolicy"), d.all("XBackendTrafficPolicy")...) {
		spec := d.spec(o)
		own := &networking.TrafficPolicy{}
		if o.kind == "BackendTLSPolicy" {
			own.Tls = spec.get("validation").clientTLS()
		} else {
			own.LoadBalancer, own.RetryBudget = &networking.LoadBalancerSettings{}, spec.get("retryConstraint").retryBudget()
		}
		for _, t := range spec.list("targetRefs") {
			ref := t.reference("", "")
			policy := policies[ref.Key]
			switch {
			case !ref.is("", "Service"):
				t.report("kind %s of %q is no Service: this target has no policy", ref.Kind, ref.group)
				continue
			case d.missingService(ref.Namespace, ref.Name):
				t.report("%s does not exist: this target has no policy", ref)
				continue
			case policy == nil:
				policy = &networking.TrafficPolicy{}
				policies[ref.Key] = policy
			case own.GetTls() != nil && policy.GetTls() != nil || own.GetTls() == nil && policy.GetLoadBalancer() != nil:
				t.report("%s has an older policy of this kind, which counts", ref)
				continue
			}
			if t.has("sectionName") {
				t.get("sectionName").report("it is not read: the policy is for all ports of the Service")
			}
			proto.Merge(policy, own)
			of[ref.Key] = append(of[ref.Key], o)
		}
	}
	for key, policy := range policies {
		d.add(resource.DestinationRule, key.Namespace, key.Name+"-"+generated, nil, &networking.DestinationRule{
			Host: d.serviceHost(key.Namespace, key.Name), TrafficPolicy: policy,
		}, of[key]...)
	}
}

// clientTLS returns the TLS settings of a BackendTLSPolicy. ConfigMaps are not read: they are taken as they are named.
func (n node) clientTLS() *networking.ClientTLSSettings {
	tls := &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, Sni: n.text("hostname")}
	for _, name := range n.list("subjectAltNames") {
		if field := map[string]string{"Hostname": "hostname", "URI": "uri"}[name.text("type")]; field != "" {
			tls.SubjectAltNames = append(tls.SubjectAltNames, name.text(field))
		}
	}
	refs := n.list("caCertificateRefs")
	switch known := n.get("wellKnownCACertificates"); {
	case known.value != nil && known.value != "System":
		known.report("%q is not System, which is used", known.value)
	case known.value != nil || len(refs) == 0:
	default:
		if len(refs) > 1 {
			n.get("caCertificateRefs").report("there are %d, and only the first is used", len(refs))
		}
		ref := refs[0].reference("", "ConfigMap")
		tls.CredentialName = "configmap://" + ref.Namespace + "/" + ref.Name
		if !ref.is("", "ConfigMap") {
			refs[0].report("kind %s of %q is no ConfigMap: connections fail", ref.Kind, ref.group)
			tls.CredentialName = "invalid://" // with which nothing connects
		}
	}
	return tls
}

func (n node) retryBudget() *networking.TrafficPolicy_RetryBudget {
	if n.value == nil {
		return nil
	}
	budget := &networking.TrafficPolicy_RetryBudget{
		MinRetryConcurrency: uint32(n.get("minRetryRate").number("count", 10)), // the default of Gateway API
	}
	if percent := n.get("budget"); percent.has("percent") {
		budget.Percent = wrapperspb.Double(float64(percent.number("percent", 0)))
	}
	return budget
}
