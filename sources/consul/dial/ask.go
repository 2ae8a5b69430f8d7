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

// Consul does not tell those who send no token that it hides something from them. To them, what they may not see and what
// does not exist look the same. So we have to know whether a token was sent, and to ask for the rights of strangers.

// Right is the right to read something.
type Right struct {
	Resource string // "service", "node" or "key"
	Name     string // or nothing, for one of any name
}

// maxRights is how many rights Consul takes at once.
const maxRights = 64

// Expressible reports whether a path can be asked for. Consul takes any characters in the names of services and keys, and refuses
// or redirects requests with some of them (observed in 1.22).
func Expressible(p string) bool {
	return path.Clean(p) == strings.TrimSuffix(p, "/") && !strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) })
}

// MayRead reports whether we, with the token of the moment, or anonymous clients have all of rights in that datacenter, namespace and
// partition, as is the case where Consul has no ACLs.
func (c *Client) MayRead(ctx context.Context, datacenter, namespace, partition string, anonymous bool, rights []Right) (bool, error) {
	for some := range slices.Chunk(rights, maxRights) {
		may, err := c.authorize(ctx, datacenter, namespace, partition, anonymous, some)
		if aclsDisabled(err) {
			return true, nil
		}
		// It may be the answer of a proxy that lets only some questions through, or of an old Consul.
		if code := statusOf(err).Code; code >= 400 && code < 500 && code != http.StatusTooManyRequests {
			_, _, other := c.ACL().TokenReadSelf((&api.QueryOptions{Token: nobody}).WithContext(ctx))
			if aclsDisabled(other) {
				return true, nil
			}
		}
		if err != nil || !may {
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

// authorize asks what Consul's own UI asks to know what it can offer.
func (c *Client) authorize(ctx context.Context, datacenter, namespace, partition string, anonymous bool, rights []Right) (bool, error) {
	type question struct {
		Resource, Access, Segment string
		Namespace, Partition      string `json:",omitempty"`
	}
	questions := make([]question, len(rights))
	for i, r := range rights {
		questions[i] = question{r.Resource, "read", r.Name, cmp.Or(namespace, c.namespace), cmp.Or(partition, c.partition)}
	}
	o := &api.WriteOptions{Datacenter: datacenter}
	if anonymous {
		o.Token = nobody
	}
	var answers []struct{ Allow bool }
	_, err := c.Raw().Write(authorizePath, questions, &answers, o.WithContext(ctx))
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

// Whole returns an error if something in a list that Consul answered with is null, as nothing in its answers is.
func Whole[T any](list []*T) error {
	if i := slices.Index(list, nil); i >= 0 {
		return fmt.Errorf("item %d of %d is null: %w", i+1, len(list), errNotConsul)
	}
	return nil
}

// Cluster asks which cluster answers: for the trust domain of the authority for certificates that it has for its mesh. A cluster makes
// one with its data, keeps it for as long as it has that, also over a snapshot, and tells it everybody. Datacenters that are
// joined may have the same. It is empty if that cannot be known: the mesh is switched off, or something in front of Consul does not let it
// through.
func (c *Client) Cluster(ctx context.Context, datacenter string) (string, error) {
	roots, _, err := c.Connect().CARoots((&api.QueryOptions{RequireConsistent: true, Datacenter: datacenter}).WithContext(ctx))
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

// Pulse is what the server of Consul that answers stale questions says of itself.
type Pulse struct {
	// KnownLeader says that there is a leader. Without one what is answered stays as it was, whatever happens.
	KnownLeader bool
	// LastContact is how long ago the server heard of its leader: as old its answers may be.
	LastContact time.Duration
}

// Pulse asks for it, as cheaply as can be: for the servers themselves, and what they are does not matter, so that no rights
// are needed.
func (c *Client) Pulse(ctx context.Context, datacenter string) (Pulse, error) {
	_, meta, err := c.Health().Service("consul", "", false, (&api.QueryOptions{AllowStale: true, Datacenter: datacenter}).WithContext(ctx))
	if err != nil {
		return Pulse{}, err
	}
	return Pulse{KnownLeader: meta.KnownLeader, LastContact: meta.LastContact}, nil
}

// Vitals are metrics of what the servers of the parts of a Consul said of themselves when they were last asked; of several parts that
// which is worst. There are none before the first was asked. They are safe for concurrent use.
type Vitals struct {
	mu   sync.Mutex
	last map[string]Pulse // by part
}

var (
	leaderDesc = prometheus.NewDesc("tributary_consul_known_leader",
		"Whether the server that answers knows a leader (1), as last asked.", nil, nil)
	contactDesc = prometheus.NewDesc("tributary_consul_last_contact_seconds",
		"How long ago the server that answers heard of its leader, as last asked.", nil, nil)
)

// Set stores the answer of a part.
func (v *Vitals) Set(part string, p Pulse) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last == nil {
		v.last = make(map[string]Pulse)
	}
	v.last[part] = p
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
	leader, contact := 1.0, time.Duration(0)
	for _, p := range v.last {
		if !p.KnownLeader {
			leader = 0
		}
		contact = max(contact, p.LastContact)
	}
	ch <- prometheus.MustNewConstMetric(leaderDesc, prometheus.GaugeValue, leader)
	ch <- prometheus.MustNewConstMetric(contactDesc, prometheus.GaugeValue, contact.Seconds())
}
