package envoy

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	networking "istio.io/api/networking/v1alpha3"
)

// aspect is what of clients objects look at.
type aspect int

const (
	ofLabels      aspect = iota // of their workloads
	ofNamespaces                // in which they are: each object looks at its own and those that it names
	ofPlaces                    // where they are
	ofCredentials               // in which folder they have them
	ofSites                     // the places that there are, where these are looked at: see sites.go
	aspects
)

// elsewhere stands for all namespaces that no object is in or names: to their clients the same is told. It is no name of a namespace.
const elsewhere = "other namespaces"

func (l labels) namespaces(names ...string) {
	for _, name := range names {
		l[label{of: ofNamespaces, name: name}] = struct{}{}
	}
}

// places adds that a policy ranks endpoints by where they are, if it does.
func (l labels) places(p *policy) {
	if dependsOnPlace(p) {
		l[label{of: ofPlaces}] = struct{}{}
		l.sites(p)
	}
}

// credentials adds that some are looked for by name.
func (l labels) credentials(names []string) {
	if slices.ContainsFunc(names, isCredential) {
		l[label{of: ofCredentials}] = struct{}{}
	}
}

// credentialsOf returns those that a server names.
func credentialsOf(tls *networking.ServerTLSSettings) []string {
	return append([]string{tls.GetCredentialName(), tls.GetCaCertCredentialName()}, tls.GetCredentialNames()...)
}

// credentials returns those that a policy names.
func (p *policy) credentials() (names []string) {
	of := func(t *networking.TrafficPolicy) {
		names = append(names, t.GetTls().GetCredentialName())
		for _, s := range t.GetPortLevelSettings() {
			names = append(names, s.GetTls().GetCredentialName())
		}
	}
	of(p.traffic)
	for _, s := range p.subsets {
		of(s.GetTrafficPolicy())
	}
	return names
}

// lookedAtByEntry is what a ServiceEntry of a namespace looks at.
func lookedAtByEntry(namespace string, exportTo []string) labels {
	all := make(labels, 1+len(exportTo))
	all.namespaces(namespace)
	all.namespaces(exportTo...)
	return all
}

var fieldExportTo = (&networking.ServiceEntry{}).ProtoReflect().Descriptor().Fields().ByName("export_to").Number()

// exportedTo returns to whom an encoded ServiceEntry is exported. Its endpoints, which are most of it, are not decoded.
func exportedTo(body []byte) (exportTo []string) {
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
