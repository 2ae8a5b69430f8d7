package eureka

import (
	"context"
	"fmt"
	"time"

	"tributary/sources"
	"tributary/sources/eureka/client"
	"tributary/sources/eureka/wire"
)

// serverAPI reads servers. See client.Client.
type serverAPI interface {
	Servers() []string
	Listing(ctx context.Context, server string, previous *client.Reply) (*client.Reply, error)
	Changes(ctx context.Context, server string, previous *client.Reply) (*client.Reply, error)
}

// run is one run of a source. Its loop owns it.
type run struct {
	*state
	server  int           // the index of the followed server
	listing *client.Reply // its last answers
	changes *client.Reply
	returns time.Time // when to try the first server again
}

// Run polls the Eureka and publishes its services until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	return s.newRun().Poller.Run(ctx, sink)
}

func (s *Source) newRun() *run {
	created := &run{listing: noReply, changes: noReply}
	created.state = newState(s, created.read)
	return created
}

var noReply = &client.Reply{Answer: &wire.Answer{}}

// read reads a listing and recent changes.
func (r *run) read(ctx context.Context, now time.Time) (catalog, error) {
	listing, switched, err := r.readListing(ctx, now)
	if err != nil {
		return catalog{}, err
	}
	changes, err := r.servers.Changes(ctx, r.servers.Servers()[r.server], r.changes)
	if err != nil { // the server does not offer them: the listing counts alone
		changes = noReply
	}
	unchanged := listing == r.listing && changes.Sum == r.changes.Sum
	r.listing, r.changes = listing, changes
	if unchanged {
		return catalog{Unchanged: true}, nil
	}
	return *r.takeListing(listing.Apply(changes.Answer), changes.Instances, switched), nil
}

// readListing reads the listing of the followed server. If that fails, it follows the next server that answers. From
// time to time it returns to the first server that does not list much less.
func (r *run) readListing(ctx context.Context, now time.Time) (reply *client.Reply, switched bool, err error) {
	servers, first := r.servers.Servers(), r.server
	returning := !now.Before(r.returns)
	if returning {
		first, r.returns = 0, now.Add(r.settings.Resync)
	}
	for offset := range servers {
		candidate := (first + offset) % len(servers)
		reply, failure := r.servers.Listing(ctx, servers[candidate], r.listing)
		switched = candidate != r.server
		least := len(r.listed) - maxLoss(len(r.listed))
		switch {
		case failure != nil && err == nil:
			err = fmt.Errorf("no server answers: %w", failure)
		case failure != nil:
			err = fmt.Errorf("%w; %w", err, failure)
		case returning && switched && reply != r.listing && len(reply.Instances) < least:
		default:
			if switched {
				r.switches.Add(1)
			}
			r.server = candidate
			return reply, switched, nil
		}
		r.listing = noReply // the next listing counts, whatever it is
	}
	return nil, false, err
}
