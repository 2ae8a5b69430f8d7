package envoy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/resource"
)

// telemetry is a Telemetry: what clients are to log, and which requests they are to trace.
type telemetry struct {
	key     resource.Key
	created time.Time
	version string
	spec    *telemetryv1alpha1.Telemetry
}

// isForAll says whether it is for all clients of its namespace.
func (t *telemetry) isForAll() bool { return len(t.spec.GetSelector().GetMatchLabels()) == 0 }

func (m *mesh) setTelemetry(key resource.Key, r *resource.Resource, spec *telemetryv1alpha1.Telemetry, touched map[string]struct{}) {
	delete(m.telemetries, key)
	if spec != nil {
		m.telemetries[key] = &telemetry{key: key, created: r.Created(), version: r.Version(), spec: spec}
	}
	m.observeAnew(touched)
}

// observeAnew has all clients look again at what they are to log and to trace.
func (m *mesh) observeAnew(touched map[string]struct{}) {
	m.observes++
	touched[gatewayUnit] = struct{}{}
}

// touchProviders has all clients look again at what they are to log and to trace if a host is touched to which they would send it.
func (m *mesh) touchProviders(touched map[string]struct{}) {
	for _, p := range m.config().spec.GetExtensionProviders() {
		service, _, _ := providerService(p)
		_, host := splitService(service)
		if _, is := touched[host]; is {
			m.observeAnew(touched)
			return
		}
	}
}

// telemetriesOf returns the Telemetries that are for clients of a profile, those that are overridden first: the oldest one for all of the root namespace,
// that of their own namespace, and all there that select them by labels.
func (m *mesh) telemetriesOf(p profile) (all []*telemetry) {
	forAll := make(map[string]*telemetry)
	for _, t := range m.telemetries {
		of := t.key.Namespace
		switch {
		case t.spec.GetTargetRef() != nil || len(t.spec.GetTargetRefs()) > 0:
		case t.isForAll():
			if first := forAll[of]; first == nil || t.compare(first) < 0 {
				forAll[of] = t
			}
		case of == p.namespace && selectsLabels(t.spec.GetSelector().GetMatchLabels(), p.labelMap()):
			all = append(all, t)
		}
	}
	slices.SortFunc(all, (*telemetry).compare)
	var wide []*telemetry
	for _, namespace := range slices.Compact([]string{rootNamespace, p.namespace}) {
		if t := forAll[namespace]; t != nil {
			wide = append(wide, t)
		}
	}
	return append(wide, all...)
}

func (t *telemetry) compare(o *telemetry) int {
	return cmp.Or(t.created.Compare(o.created), olderName(t.key, o.key))
}

// Names of providers that there are without a MeshConfig that has them.
const (
	providerEnvoy       = "envoy" // logs to the standard output
	providerPrometheus  = "prometheus"
	providerStackdriver = "stackdriver"
)

// provider returns what goes by a name, in whatever case, or nil.
func (c *meshConfig) provider(name string) *meshv1alpha1.MeshConfig_ExtensionProvider {
	for _, p := range c.spec.GetExtensionProviders() {
		if strings.EqualFold(p.GetName(), name) {
			return p
		}
	}
	builtIn := &meshv1alpha1.MeshConfig_ExtensionProvider{Name: strings.ToLower(name)}
	switch builtIn.GetName() {
	case providerEnvoy:
		builtIn.Provider = &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
			EnvoyFileAccessLog: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: standardOutput},
		}
	case providerPrometheus:
		builtIn.Provider = &meshv1alpha1.MeshConfig_ExtensionProvider_Prometheus{}
	case providerStackdriver:
		builtIn.Provider = &meshv1alpha1.MeshConfig_ExtensionProvider_Stackdriver{}
	default:
		return nil
	}
	return builtIn
}

// providerService returns the service and its port to which a provider that is translated sends, or false if it sends nowhere.
func providerService(p *meshv1alpha1.MeshConfig_ExtensionProvider) (service string, port uint32, ok bool) {
	switch p := p.GetProvider().(type) {
	case *meshv1alpha1.MeshConfig_ExtensionProvider_Zipkin:
		return p.Zipkin.GetService(), p.Zipkin.GetPort(), true
	case *meshv1alpha1.MeshConfig_ExtensionProvider_Opentelemetry:
		return p.Opentelemetry.GetService(), p.Opentelemetry.GetPort(), true
	}
	return "", 0, false
}

// splitService returns the namespace and the host of a provider's service, of which the former may be left open.
func splitService(service string) (namespace, host string) {
	namespace, host, limited := strings.Cut(strings.ToLower(service), "/")
	if !limited {
		return "", namespace
	}
	return namespace, host
}

// clusterOf returns the host to which a provider sends, and its cluster, or why there is none. Without a namespace, the host has to be that of one only.
func (m *mesh) clusterOf(p *meshv1alpha1.MeshConfig_ExtensionProvider, client profile, only *sidecarRule) (host, cluster, why string) {
	service, number, _ := providerService(p)
	namespace, host := splitService(service)
	if client.onDemand {
		return "", "", "Envoys that ask for what they use know no clusters beforehand"
	}
	known := m.service(host, client, only)
	of := make(map[string]bool)
	for _, e := range m.hosts[host] {
		of[e.key.Namespace] = true
	}
	switch {
	case namespace == "" && len(of) > 1:
		return "", "", "several namespaces have " + host + ": one has to be named, as in namespace/host"
	case known == nil || namespace != "" && known.namespace != namespace:
		return "", "", "there is no service " + service + " here"
	}
	if !slices.ContainsFunc(known.ports, func(p port) bool { return p.number == number }) {
		return "", "", service + " has no port " + routeName(number)
	}
	return known.host, clusterName(number, "", known.host), ""
}
