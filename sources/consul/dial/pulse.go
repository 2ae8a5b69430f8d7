package dial

import (
	"context"
	"time"

	"github.com/hashicorp/consul/api"
)

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
