package dial

import (
	"context"
	"strings"

	"github.com/hashicorp/consul/api"
)

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
