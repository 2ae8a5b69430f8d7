// Package kube reads the objects of a Kubernetes cluster from outside. It publishes objects of Istio's kinds as they
// are, and converts Services, Ingresses and objects of the Gateway API.
//
// The group of an object is Kind/namespace/name; derived objects have one group. README.md describes the behaviour in
// each situation.
//
// api.go is the client of the API server; exec_plugin.go bounds the requests that wait for a plugin of the kubeconfig.
// cache.go is pure, and decides which answers are trusted. stream.go lists and watches one kind in one namespace.
// run.go discovers the kinds and publishes changes. conversion.go has the handlers of the kinds, unread_policies.go the
// reports of policies that were never read, and rights.go the permissions.
package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/apimachinery/pkg/labels"

	"tributary/adsc"
	addresses "tributary/internal/address"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/kube/mapping"
	"tributary/sources/registry"
)

// NoKinds is the value of Settings.Kinds that reads no objects of Istio.
const NoKinds = "none"

// Settings are the options of a source; see README.md. Zero values stand for the defaults.
type Settings struct {
	Namespaces, Kinds       []string
	LabelSelector, Revision string // select objects of Istio
	// UnknownFields is as in sources.Texts. Default: warn, since the API server has checked the fields already.
	UnknownFields string
	DomainSuffix  string
	Hold          time.Duration
	Services      *Services       // nil for none
	VIPs          registry.VIPs   // for Services; nil for none
	Derive        *derive.Options // nil without derived objects
	TLS           *adsc.TLS       // for addresses with a host
	TokenFile     string          // for addresses with a host
}

// Source is a sources.Source of a cluster.
type Source struct {
	settings     Settings
	cluster      cluster
	decode       resource.Options
	mapper       *mapping.Mapper // nil without Services
	shownAddress string

	newBackOff        func() backoff.BackOff
	settleTime        time.Duration // time after which older lists mean a restored cluster
	discoveryInterval time.Duration // interval of discovery
	maxWatch          time.Duration // longest duration of a watch; the shortest is half of it
	collectTime       time.Duration // time of collecting changes after a publish
	pageSize          int
}

// New returns a source of the cluster at address. An error begins with the key at fault.
func New(address string, settings Settings) (*Source, error) {
	cluster, err := parseAddress(address, settings)
	if err != nil {
		return nil, err
	}
	if err := settings.complete(); err != nil {
		return nil, err
	}
	decode, err := sources.Texts{UnknownFields: settings.UnknownFields, DomainSuffix: settings.DomainSuffix}.Options()
	if err != nil {
		return nil, err
	}
	decode.Validate = false // its findings have lines; objects of an API server have none
	var mapper *mapping.Mapper
	if settings.Services != nil {
		if mapper, err = mapping.New(settings.Services.Options, settings.VIPs, addresses.Shown(address)); err != nil {
			return nil, fmt.Errorf("services.%w", err)
		}
	}
	return &Source{
		settings:     settings,
		cluster:      cluster,
		decode:       decode,
		mapper:       mapper,
		shownAddress: addresses.Shown(address),
		newBackOff: func() backoff.BackOff {
			return backoff.NewExponentialBackOff(backoff.WithInitialInterval(500*time.Millisecond),
				backoff.WithMaxInterval(10*time.Second), backoff.WithMaxElapsedTime(0))
		},
		settleTime:        10 * time.Second,
		discoveryInterval: 30 * time.Second,
		maxWatch:          5 * time.Minute,
		collectTime:       100 * time.Millisecond,
		pageSize:          500,
	}, nil
}

// complete checks the settings and fills in the defaults.
func (s *Settings) complete() error {
	s.Namespaces = slices.Compact(slices.Sorted(slices.Values(s.Namespaces)))
	for _, namespace := range s.Namespaces {
		if err := resource.CheckNamespace(namespace); err != nil {
			return fmt.Errorf("namespaces: %w", err)
		}
	}
	if len(s.Namespaces) == 0 {
		s.Namespaces = []string{""}
	}
	if _, err := labels.Parse(s.LabelSelector); err != nil {
		return fmt.Errorf("labelSelector: %w", err)
	}
	s.Kinds = slices.Clone(s.Kinds) // the configuration owns the other list
	for i, name := range s.Kinds {
		if name == NoKinds && len(s.Kinds) == 1 {
			continue
		}
		schema, exists := resource.SchemaByName(name)
		if !exists || schema.Bare {
			return fmt.Errorf("kinds: unknown kind %q; want kinds of Istio that are objects in a cluster, or %s alone", name,
				NoKinds)
		}
		s.Kinds[i] = string(schema.Kind)
	}
	s.UnknownFields = cmp.Or(s.UnknownFields, "warn")
	s.DomainSuffix = cmp.Or(s.DomainSuffix, "cluster.local")
	return registry.Time("hold", &s.Hold, 5*time.Minute, time.Millisecond, 24*time.Hour)
}

// Run publishes the objects of the cluster until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error { return newRun(s, sink).run(ctx) }
