package eureka

import (
	"context"
	"errors"
	"time"

	"tributary/internal/fetch"
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
	fetch.Follower

	listing, changes *client.Reply // the last answers of the followed server
}

// Run polls the Eureka and publishes its services until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	return s.newRun().Poller.Run(ctx, sink)
}

func (s *Source) newRun() *run {
	created := &run{listing: noReply, changes: noReply}
	created.Follower = fetch.Follower{Servers: s.servers.Servers(), Resync: s.settings.Resync}
	created.state = newState(s, created.read)
	return created
}

var noReply = &client.Reply{Answer: &wire.Answer{}}

var errFewer = errors.New("the server lists fewer instances than the followed one")

// read reads a listing and recent changes. It returns to a preferred server unless that lists much less.
func (r *run) read(ctx context.Context, now time.Time) (catalog, error) {
	var listing *client.Reply
	switched, err := r.Read(now, func(server string, returning bool) (err error) {
		listing, err = r.servers.Listing(ctx, server, r.listing)
		least := len(r.listed) - maxLoss(len(r.listed))
		if err == nil && returning && listing != r.listing && len(listing.Instances) < least {
			err = errFewer
		}
		if err != nil {
			r.listing = noReply // the next listing counts, whatever it is
		}
		return err
	})
	if err != nil {
		return catalog{}, err
	}
	if switched {
		r.switches.Add(1)
	}
	changes, err := r.servers.Changes(ctx, r.Servers[r.Server], r.changes)
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
