package mapping

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/names"
	"tributary/resource"
)

// Sidecars are the options of the Sidecars of applications. Zero values stand for the defaults.
type Sidecars struct {
	// Namespace is that of the calling workloads. Default: default.
	Namespace string
	// Label is the label of these workloads that has the application's name. Default: app.
	Label string
	// Hosts are other hosts that these workloads see, as namespace/host. Default: ./* and istio-system/*.
	Hosts []string
}

// WithDefaults returns the options with defaults for those that are not set.
func (s Sidecars) WithDefaults() Sidecars {
	s.Namespace, s.Label = cmp.Or(s.Namespace, "default"), cmp.Or(s.Label, "app")
	if s.Hosts == nil {
		s.Hosts = []string{"./*", "istio-system/*"}
	}
	return s
}

func (s Sidecars) validate() error {
	if !names.IsDNSLabel(s.Namespace) {
		return fmt.Errorf("sidecars.namespace: %q is none", s.Namespace)
	}
	if !names.IsLabelKey(s.Label) {
		return fmt.Errorf("sidecars.label: %q cannot be the key of a label", s.Label)
	}
	for _, entry := range s.Hosts {
		namespace, host, ok := strings.Cut(entry, "/")
		if wild := namespace == "." || namespace == "*" || namespace == "~"; !ok || !wild && !names.IsDNSLabel(namespace) ||
			host != "*" && !names.IsHost(strings.TrimPrefix(host, "*.")) {
			return fmt.Errorf("sidecars.hosts: want namespace/host, such as ./*, got %q", entry)
		}
	}
	return nil
}

// Sidecar returns the Sidecar of an application that calls hosts, or why it cannot have one.
func (m *Mapper) Sidecar(application string, hosts []string) (*resource.Resource, error) {
	place := strings.ToValidUTF8("consumers of application "+application, "?")
	if !names.IsLabelText(application) {
		return nil, fmt.Errorf("%s: its name cannot be the value of the label of its workloads", place)
	}
	egress := make([]string, 0, len(hosts)+len(m.o.Sidecars.Hosts))
	for _, host := range hosts {
		if !strings.Contains(host, ".") { // a Sidecar cannot name this host, so it sees all
			egress = []string{m.o.Namespace + "/*"}
			break
		}
		egress = append(egress, m.o.Namespace+"/"+host)
	}
	egress = append(egress, m.o.Sidecars.Hosts...)
	slices.Sort(egress)
	if egress = slices.Compact(egress); len(egress) == 0 {
		egress = []string{"~/*"} // none
	}
	return resource.New(resource.Meta{
		Key: resource.Key{
			Kind: resource.Sidecar, Namespace: m.o.Sidecars.Namespace,
			Name: names.Label(application, application),
		},
		Annotations: map[string]string{annotationApplication: application},
		Origin:      resource.Origin{Place: place},
	}, &networking.Sidecar{
		WorkloadSelector: &networking.WorkloadSelector{Labels: map[string]string{m.o.Sidecars.Label: application}},
		Egress:           []*networking.IstioEgressListener{{Hosts: egress}},
	})
}

// annotationApplication is the annotation with the application of a Sidecar.
const annotationApplication = "tributary/dubbo-application"

// Consumed returns the hosts in Sidecars that this package made earlier, by application.
func (m *Mapper) Consumed(resources []*resource.Resource) map[string][]string {
	consumed := map[string][]string{}
	if m.o.Sidecars == nil {
		return consumed
	}
	for _, object := range resources {
		spec, err := object.Spec()
		sidecar, ok := spec.(*networking.Sidecar)
		application := object.Annotations()[annotationApplication]
		if err != nil || !ok || application == "" {
			continue
		}
		consumed[application] = slices.Clip(consumed[application]) // also without a host
		for _, e := range sidecar.Egress {
			for _, h := range e.Hosts {
				if host, ours := strings.CutPrefix(h, m.o.Namespace+"/"); ours && !slices.Contains(m.o.Sidecars.Hosts, h) {
					consumed[application] = append(consumed[application], host)
				}
			}
		}
	}
	return consumed
}
