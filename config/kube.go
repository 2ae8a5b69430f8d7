package config

import (
	"cmp"

	"tributary/sources"
	"tributary/sources/kube"
)

// Kube has the settings of k8s sources. What is zero has the default of package kube.
type Kube struct {
	Connection
	Written

	// Namespaces to read, each by itself, so that Roles suffice. Default: the whole cluster.
	Namespaces []string `json:"namespaces,omitempty" reading:"set"`
	// Kinds of Istio to read; none alone for none. Default: all of which the cluster has a CRD.
	Kinds []string `json:"kinds,omitempty" reading:"set"`
	// Selects objects of Istio by their labels, as kubectl -l does, such as mesh=yes. The API server applies it.
	LabelSelector string `json:"labelSelector,omitempty"`
	// Leaves out objects labelled istio.io/rev for another revision.
	Revision string `json:"revision,omitempty"`
	// What to make of a field that is not known: error refuses the object, warn takes it without the field. Default: warn.
	UnknownFields string `json:"unknownFields,omitempty"`
	// Completes host names without a dot in VirtualServices and DestinationRules, as istiod does. Default: cluster.local.
	DomainSuffix string `json:"domainSuffix,omitempty"`
	// How long an object stays that is no longer listed after the cluster went back in time, or after its CRD was missing. Default: 5m.
	Hold Duration `json:"hold,omitempty" reading:"-"`
}

// Source returns the settings as package kube takes them.
func (s *Kube) Source() (made kube.Settings) {
	assign(&made, *s)
	made.TLS = s.tls()
	return made
}

func (s *Kube) locate(dir, address string) string {
	return under(dir, s.Connection.locate(dir, address))
}

func (s *Kube) open(address string, _ Parts) (sources.Source, error) {
	return kube.New(address, s.Source())
}

func (s *Kube) reading() any {
	return reading(*s, Kube{
		UnknownFields: cmp.Or(s.UnknownFields, "warn"), DomainSuffix: cmp.Or(s.DomainSuffix, "cluster.local"),
		Namespaces: s.Namespaces, Kinds: s.Kinds, LabelSelector: s.LabelSelector, Revision: s.Revision,
	})
}
