// Package kube reads the objects of a Kubernetes cluster from outside: those of Istio's kinds as they are.
//
// The group of what it publishes is Kind/namespace/name. See README.md for what it does in which situation.
//
// api.go speaks to the API server, memory.go says what is believed of its answers and is pure, follow.go lists and watches one kind in one
// namespace, discover.go finds out which kinds there are, and run.go hands on what has changed.
package kube

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
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

// Scheme is that of addresses of clusters.
const Scheme = "k8s"

// NoKinds is the value of Settings.Kinds that reads no objects of Istio.
const NoKinds = "none"

// Settings are the options of a source. Zero values stand for the defaults.
type Settings struct {
	// Namespaces are those to read, each with a list and a watch of its own. Default: all, with one of the whole cluster.
	Namespaces []string
	// LabelSelector selects objects of Istio, as kubectl's -l does.
	LabelSelector string
	// Revision leaves out objects with the label istio.io/rev of another revision.
	Revision string
	// Kinds are those of Istio's to read, or NoKinds. Default: all.
	Kinds []string
	// UnknownFields is that of sources.Texts, but for the default, which is "warn": the API server has checked the fields already.
	UnknownFields string
	// DomainSuffix completes host names without a dot. Default: cluster.local, as in Kubernetes.
	DomainSuffix string
	// Hold is how long an object stays that is not listed after the server went back in time or the CRD was missing. Default: 5m.
	Hold time.Duration

	// Services has ServiceEntries made of Services; nil for none. VIPs gives them addresses of their own; nil for none.
	Services *Services
	VIPs     registry.VIPs

	// Derive has Istio's objects made of those of other APIs, such as Gateway API; nil for none.
	Derive *derive.Options

	// TLS and TokenFile are for addresses with a host; a kubeconfig has its own.
	TLS       *adsc.TLS
	TokenFile string
}

// Source is a sources.Source of a cluster.
type Source struct {
	settings Settings
	cluster  cluster
	decode   resource.Options
	mapper   *mapping.Mapper // nil without Services
	shown    string

	newBackOff func() backoff.BackOff
	settle     time.Duration // how long a list may be older than what was seen before that counts as a restored cluster
	lookEvery  time.Duration // how often the kinds are looked for
	watchFor   time.Duration // how long one watch lasts at most; at least half as long
	delay      time.Duration // how long changes are collected after some were published
	pageSize   int
}

var _ sources.Source = (*Source)(nil)

const (
	defaultHold   = 5 * time.Minute
	revisionLabel = "istio.io/rev"
)

// New returns a source of the cluster at address. An error begins with the key at fault.
func New(address string, settings Settings) (*Source, error) {
	c, err := parseAddress(address, settings)
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
	decode.Validate = false // with it, findings have lines, of which objects of an API server have none
	var mapper *mapping.Mapper
	if settings.Services != nil {
		if mapper, err = mapping.New(settings.Services.Options, settings.VIPs); err != nil {
			return nil, fmt.Errorf("services.%w", err)
		}
	}
	return &Source{
		settings: settings, cluster: c, decode: decode, mapper: mapper, shown: addresses.Shown(address),
		newBackOff: func() backoff.BackOff {
			return backoff.NewExponentialBackOff(backoff.WithInitialInterval(500*time.Millisecond),
				backoff.WithMaxInterval(maxRetry), backoff.WithMaxElapsedTime(0))
		},
		settle: 10 * time.Second, lookEvery: 30 * time.Second, watchFor: 5 * time.Minute, delay: 100 * time.Millisecond, pageSize: 500,
	}, nil
}

// complete checks the settings and fills in the defaults.
func (s *Settings) complete() error {
	s.Namespaces = slices.Compact(slices.Sorted(slices.Values(s.Namespaces)))
	for _, n := range s.Namespaces {
		if err := resource.CheckNamespace(n); err != nil {
			return fmt.Errorf("namespaces: %w", err)
		}
	}
	if len(s.Namespaces) == 0 {
		s.Namespaces = []string{""}
	}
	if _, err := labels.Parse(s.LabelSelector); err != nil {
		return fmt.Errorf("labelSelector: %w", err)
	}
	s.Kinds = slices.Clone(s.Kinds) // those given are the configuration's
	for i, name := range s.Kinds {
		if name == NoKinds && len(s.Kinds) == 1 {
			continue
		}
		schema, known := resource.SchemaByName(name)
		if !known || schema.Bare {
			return fmt.Errorf("kinds: unknown kind %q; want kinds of Istio that are objects in a cluster, or %s alone", name, NoKinds)
		}
		s.Kinds[i] = string(schema.Kind)
	}
	s.UnknownFields = cmp.Or(s.UnknownFields, "warn")
	s.DomainSuffix = cmp.Or(s.DomainSuffix, "cluster.local")
	return registry.Time("hold", &s.Hold, defaultHold, time.Millisecond, 24*time.Hour)
}

// cluster says where a cluster is, and how to log in.
type cluster struct {
	kubeconfig, context string    // of a kubeconfig; both may be empty for the usual one
	url                 string    // of the API server, if the address names one
	tls                 *adsc.TLS // the same
	tokenFile           string    // the same
}

// parseAddress reads an address.
func parseAddress(address string, s Settings) (cluster, error) {
	const want = "k8s://, k8s:///path/to/kubeconfig?context=NAME or k8s://host:6443"
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != Scheme || u.Opaque != "" || u.Fragment != "":
		return cluster{}, fmt.Errorf("address: want %s, got %q", want, addresses.Shown(address))
	case u.User != nil:
		return cluster{}, fmt.Errorf("address: it has no user; name a file with a token with tokenFile, or a kubeconfig")
	}
	for name, values := range u.Query() {
		if name != "context" || len(values) != 1 || values[0] == "" {
			return cluster{}, fmt.Errorf("address: the parameter %s is not known here, or not given once; want context=NAME", name)
		}
	}
	if u.Host == "" || u.Host == "." || u.Host == ".." {
		switch {
		case s.TLS != nil:
			return cluster{}, fmt.Errorf("tlsSettings: they are for addresses such as k8s://host:6443; a kubeconfig has its own")
		case s.TokenFile != "":
			return cluster{}, fmt.Errorf("tokenFile: it is for addresses such as k8s://host:6443; a kubeconfig has its own")
		}
		path := u.Path
		if u.Host != "" {
			path = filepath.Join(u.Host, u.Path)
		}
		return cluster{kubeconfig: strings.TrimSuffix(path, "/"), context: u.Query().Get("context")}, nil
	}
	if u.Query().Has("context") {
		return cluster{}, fmt.Errorf("address: the parameter context is for a kubeconfig; a path to one begins with a third slash")
	}
	c := cluster{tls: s.TLS, tokenFile: s.TokenFile}
	if c.tls == nil {
		c.tls = &adsc.TLS{Mode: adsc.TLSSimple}
	}
	if err := c.tls.Check(); err != nil {
		return cluster{}, fmt.Errorf("tlsSettings: %w", err)
	}
	c.url = "http://" + u.Host + u.Path
	if c.tls.Secure() {
		c.url = "https://" + u.Host + u.Path
	} else if s.TokenFile != "" {
		return cluster{}, fmt.Errorf("tokenFile: it needs tlsSettings, since a token is not sent in plaintext")
	}
	return c, nil
}

// Run publishes what the cluster has until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error { return newRun(s, sink).run(ctx) }
