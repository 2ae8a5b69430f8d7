package index

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// aspect is what of clients objects look at.
type aspect int

// What about clients objects may look at.
const (
	ofLabels      aspect = iota // of their workloads
	ofNamespaces                // in which they are: each object looks at its own and those that it names
	OfPlaces                    // where they are
	ofCredentials               // in which folder they have them
	ofSites                     // the places that there are, where these are looked at: see sites.go
	aspects
)

// elsewhere stands for all namespaces that no object is in or names: their clients get the same resources. It is no name of a namespace.
const elsewhere = "other namespaces"

func (l Labels) namespaces(names ...string) {
	for _, name := range names {
		l[Label{Of: ofNamespaces, name: name}] = struct{}{}
	}
}

// places adds that a policy ranks endpoints by where they are, if it does.
func (l Labels) places(p *model.Policy) {
	if dependsOnPlace(p) {
		l[Label{Of: OfPlaces}] = struct{}{}
		l.sites(p)
	}
}

// credentials adds that some are looked for by name.
func (l Labels) credentials(names []string) {
	if slices.ContainsFunc(names, model.IsCredential) {
		l[Label{Of: ofCredentials}] = struct{}{}
	}
}

// credentialsOf returns those that a server names.
func credentialsOf(tls *networking.ServerTLSSettings) []string {
	return append([]string{tls.GetCredentialName(), tls.GetCaCertCredentialName()}, tls.GetCredentialNames()...)
}

// credentials returns those that a policy names.
func credentials(p *model.Policy) (names []string) {
	of := func(t *networking.TrafficPolicy) {
		names = append(names, t.GetTls().GetCredentialName())
		for _, s := range t.GetPortLevelSettings() {
			names = append(names, s.GetTls().GetCredentialName())
		}
	}
	of(p.Traffic)
	for _, s := range p.Subsets {
		of(s.GetTrafficPolicy())
	}
	return names
}

// LookedAtByEntry is what a ServiceEntry of a namespace looks at.
func LookedAtByEntry(namespace string, exportTo []string) Labels {
	all := make(Labels, 1+len(exportTo))
	all.namespaces(namespace)
	all.namespaces(exportTo...)
	return all
}

var fieldExportTo = (&networking.ServiceEntry{}).ProtoReflect().Descriptor().Fields().ByName("export_to").Number()

// ExportedTo returns to whom an encoded ServiceEntry is exported. Its endpoints, which are most of it, are not decoded.
func ExportedTo(body []byte) (exportTo []string) {
	for len(body) > 0 {
		number, kind, tag := protowire.ConsumeTag(body)
		if tag < 0 {
			return exportTo
		}
		value := protowire.ConsumeFieldValue(number, kind, body[tag:])
		if value < 0 {
			return exportTo
		}
		if number == fieldExportTo && kind == protowire.BytesType {
			name, _ := protowire.ConsumeString(body[tag:])
			exportTo = append(exportTo, name)
		}
		body = body[tag+value:]
	}
	return exportTo
}
