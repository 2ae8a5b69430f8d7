package derive

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// policyTarget is the target of a policy: a Service, or a named port of it.
type policyTarget struct {
	kind    resource.Kind
	service resource.Key
	section string
}

// policies makes a DestinationRule for each Service with policies. Of several policies of one kind for a Service or a
// port, the oldest counts.
func (d *derivation) policies() {
	policies, objects := make(map[resource.Key]*networking.TrafficPolicy), make(map[resource.Key][]*object) // by Service
	decided := make(map[policyTarget]bool)
	for _, object := range d.objectsOf("BackendTLSPolicy", "XBackendTrafficPolicy") {
		spec, policy := d.spec(object), &networking.TrafficPolicy{}
		if object.Kind == "BackendTLSPolicy" {
			policy.Tls = spec.get("validation").clientTLS()
		} else {
			policy.LoadBalancer, policy.RetryBudget = &networking.LoadBalancerSettings{},
				spec.get("retryConstraint").retryBudget()
		}
		for _, node := range spec.list("targetRefs") {
			reference, wrong := node.refer("Service")
			target, port := policyTarget{object.Kind, reference, node.text("sectionName")}, uint32(0)
			if target.section != "" {
				port = d.portNamed(reference, target.section)
			}
			switch {
			case wrong != "":
			case decided[target]:
				wrong = strings.TrimSuffix(reference.String()+" "+target.section, " ") + " has an older policy of this kind"
			case target.section != "" && port == 0:
				wrong = fmt.Sprintf("%s has no port %q here", reference, target.section)
			}
			if wrong != "" {
				node.report("%s: this target has no policy", wrong)
				continue
			}
			decided[target] = true
			policies[reference] = cmp.Or(policies[reference], &networking.TrafficPolicy{})
			if port == 0 {
				proto.Merge(policies[reference], policy)
			} else {
				policies[reference].PortLevelSettings = append(policies[reference].PortLevelSettings,
					&networking.TrafficPolicy_PortTrafficPolicy{
						Port: &networking.PortSelector{Number: port}, Tls: policy.GetTls(), LoadBalancer: policy.GetLoadBalancer(),
					})
			}
			objects[reference] = append(objects[reference], object)
		}
	}
	for key, policy := range policies {
		rule := &networking.DestinationRule{Host: d.serviceHost(key.Namespace, key.Name), TrafficPolicy: policy}
		name := derivedName(key.Name, "-"+generated)
		d.add(resource.Key{Kind: resource.DestinationRule, Namespace: key.Namespace, Name: name}, nil, rule, objects[key]...)
	}
}

// portNamed returns the named port of a Service, or of a ServiceEntry with its host; 0 if it is unknown.
func (d *derivation) portNamed(service resource.Key, name string) uint32 {
	ports := d.spec(&object{})
	if object := d.placed[service].object; object != nil {
		ports = d.spec(object)
	}
	host := d.serviceHost(service.Namespace, service.Name)
	for _, entry := range d.objectsOf(resource.ServiceEntry) {
		if ports.value == nil && slices.Contains(d.spec(entry).texts("hosts"), host) {
			ports = d.spec(entry)
		}
	}
	for _, port := range ports.list("ports") {
		if port.text("name") == name {
			return uint32(port.number("port", port.number("number", 0)))
		}
	}
	return 0
}

// clientTLS returns the TLS settings of a BackendTLSPolicy. It does not read the named ConfigMaps. Without other names,
// the certificate must have the hostname; istiod 1.27.9 does not require that. With invalid://, all connections fail: a
// validation without hostname or authorities would be none.
func (n node) clientTLS() *networking.ClientTLSSettings {
	settings := &networking.ClientTLSSettings{Mode: networking.ClientTLSSettings_SIMPLE, Sni: n.text("hostname")}
	for _, name := range n.list("subjectAltNames") {
		settings.SubjectAltNames = append(settings.SubjectAltNames, cmp.Or(name.text("hostname"), name.text("uri")))
	}
	if hostname := settings.GetSni(); len(settings.GetSubjectAltNames()) == 0 && hostname != "" {
		settings.SubjectAltNames = []string{hostname}
	}
	if slices.Contains(settings.GetSubjectAltNames(), "") {
		n.get("subjectAltNames").reportUnserved("a hostname or uri is missing: connections fail")
		settings.SubjectAltNames, settings.CredentialName = nil, "invalid://"
		return settings
	}
	refs, roots := n.list("caCertificateRefs"), n.text("wellKnownCACertificates")
	wrong := ""
	switch {
	case settings.GetSni() == "":
		wrong = "the hostname is missing"
	case n.unread():
		wrong = "something in it is not read, and may be a check of certificates"
	case roots != "" && roots != "System":
		wrong = fmt.Sprintf("wellKnownCACertificates %q is not supported", roots)
	case len(refs) == 0 && roots == "":
		wrong = "caCertificateRefs or wellKnownCACertificates is missing"
	case roots != "":
		return settings
	}
	if wrong != "" {
		n.reportUnserved("%s: connections fail", wrong)
		settings.CredentialName = "invalid://"
		return settings
	}
	ref, wrong := refs[0].refer("ConfigMap")
	settings.CredentialName = "configmap://" + ref.FullName()
	if wrong != "" {
		refs[0].reportUnserved("%s: connections fail", wrong)
		settings.CredentialName = "invalid://"
	}
	return settings
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
	budget.BudgetInterval = n.get("budget").duration("interval")
	return budget
}
