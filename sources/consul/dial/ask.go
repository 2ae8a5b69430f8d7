package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/hashicorp/consul/api"
	"github.com/prometheus/client_golang/prometheus"
)

// Consul does not flag hidden data in answers to requests without a token: hidden and absent services look the same. So
// the source has to know whether a token was sent, and asks for the rights of anonymous clients.

// Right is the right to read something.
type Right struct {
	Resource string // "service", "node" or "key"
	Name     string // empty for any
}

// maxRights is the limit of rights in one request.
const maxRights = 64

// Expressible reports whether a path can be requested. Consul accepts any characters in the names of services and keys,
// and refuses or redirects requests with some of them (observed in 1.22).
func Expressible(p string) bool {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	return path.Clean(p) == strings.TrimSuffix(p, "/") && !strings.ContainsFunc(p, hidden)
}

// MayRead reports whether the current token, or an anonymous client, has all rights in a datacenter, namespace and
// partition. Without ACLs everyone has them.
func (c *Client) MayRead(
	ctx context.Context, datacenter, namespace, partition string, anonymous bool, rights []Right,
) (bool, error) {
	for chunk := range slices.Chunk(rights, maxRights) {
		allowed, err := c.authorize(ctx, datacenter, namespace, partition, anonymous, chunk)
		if aclsDisabled(err) {
			return true, nil
		}
		// A proxy that filters requests, or an old Consul, may have answered.
		if code := statusOf(err).Code; code >= 400 && code < 500 && code != http.StatusTooManyRequests {
			_, _, err := c.ACL().TokenReadSelf((&api.QueryOptions{Token: noToken}).WithContext(ctx))
			if aclsDisabled(err) {
				return true, nil
			}
		}
		if err != nil || !allowed {
			return false, err
		}
	}
	return true, nil
}

func aclsDisabled(err error) bool {
	status := statusOf(err)
	return status.Code == http.StatusUnauthorized && strings.Contains(status.Body, "ACL support disabled")
}

const authorizePath = "/v1/internal/acl/authorize"

// authorize sends the request with which Consul's own UI asks for its rights.
func (c *Client) authorize(
	ctx context.Context, datacenter, namespace, partition string, anonymous bool, rights []Right,
) (bool, error) {
	type request struct {
		Resource, Access, Segment string
		Namespace, Partition      string `json:",omitempty"`
	}
	requests := make([]request, len(rights))
	namespace, partition = cmp.Or(namespace, c.namespace), cmp.Or(partition, c.partition)
	for i, r := range rights {
		requests[i] = request{r.Resource, "read", r.Name, namespace, partition}
	}
	writeOptions := &api.WriteOptions{Datacenter: datacenter}
	if anonymous {
		writeOptions.Token = noToken
	}
	var answers []struct{ Allow bool }
	_, err := c.Raw().Write(authorizePath, requests, &answers, writeOptions.WithContext(ctx))
	switch {
	case errors.Is(err, io.EOF) && !errors.As(err, new(*url.Error)):
		return false, fmt.Errorf("an empty answer about %d rights: %w", len(rights), errNotConsul)
	case err != nil:
		return false, err
	}
	if len(answers) != len(rights) {
		return false, fmt.Errorf("%d answers about %d rights: %w", len(answers), len(rights), errNotConsul)
	}
	return !slices.Contains(answers, struct{ Allow bool }{}), nil
}

// Whole returns an error if an item of an answer is null, because Consul never answers null.
func Whole[T any](list []*T) error {
	if i := slices.Index(list, nil); i >= 0 {
		return fmt.Errorf("item %d of %d is null: %w", i+1, len(list), errNotConsul)
	}
	return nil
}

// Cluster returns the identity of the cluster: the trust domain of the certificate authority of its mesh. A cluster
// creates it with its data, keeps it with them, also in a snapshot, and shows it without a token. Joined datacenters
// may have the same one. It is empty if the mesh is off, or a proxy refuses the request.
func (c *Client) Cluster(ctx context.Context, datacenter string) (string, error) {
	o := &api.QueryOptions{RequireConsistent: true, Datacenter: datacenter}
	roots, _, err := c.Connect().CARoots(o.WithContext(ctx))
	switch {
	case err == nil && roots != nil:
		return roots.TrustDomain, nil
	case err == nil || strings.Contains(err.Error(), "Connect must be enabled"):
		return "", nil
	}
	switch Classify(err).Kind {
	case Refused, Garbled, Denied:
		return "", nil
	}
	return "", err
}

// Pulse tells when the server that answers stale reads last heard from its leader.
type Pulse struct {
	// KnownLeader says that there is a leader. Without one, answers do not change any more.
	KnownLeader bool
	// LastContact is the time since the server heard of its leader: the greatest age of its answers.
	LastContact time.Duration
}

// Pulse reads the headers of a cheap answer: the list of servers. It needs no rights, because the content does not
// matter.
func (c *Client) Pulse(ctx context.Context, datacenter string) (Pulse, error) {
	o := &api.QueryOptions{AllowStale: true, Datacenter: datacenter}
	_, meta, err := c.Health().Service("consul", "", false, o.WithContext(ctx))
	if err != nil {
		return Pulse{}, err
	}
	return Pulse{KnownLeader: meta.KnownLeader, LastContact: meta.LastContact}, nil
}

// Vitals are metrics: the worst of the last Pulses of all scopes. There are none before the first Pulse. They are safe
// for concurrent use.
type Vitals struct {
	mu   sync.Mutex
	last map[string]Pulse // by scope
}

var (
	leaderDesc = prometheus.NewDesc("tributary_consul_known_leader",
		"Whether the server that answers knows a leader (1), as last asked.", nil, nil)
	contactDesc = prometheus.NewDesc("tributary_consul_last_contact_seconds",
		"How long ago the server that answers heard of its leader, as last asked.", nil, nil)
)

// Set stores the pulse of a scope.
func (v *Vitals) Set(scope string, pulse Pulse) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last == nil {
		v.last = make(map[string]Pulse)
	}
	v.last[scope] = pulse
}

// Describe implements prometheus.Collector.
func (v *Vitals) Describe(ch chan<- *prometheus.Desc) {
	ch <- leaderDesc
	ch <- contactDesc
}

// Collect implements prometheus.Collector.
func (v *Vitals) Collect(ch chan<- prometheus.Metric) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.last) == 0 {
		return
	}
	leader := 1.0
	contact := time.Duration(0)
	for _, pulse := range v.last {
		if !pulse.KnownLeader {
			leader = 0
		}
		contact = max(contact, pulse.LastContact)
	}
	ch <- prometheus.MustNewConstMetric(leaderDesc, prometheus.GaugeValue, leader)
	ch <- prometheus.MustNewConstMetric(contactDesc, prometheus.GaugeValue, contact.Seconds())
}
