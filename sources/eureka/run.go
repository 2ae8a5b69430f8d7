package eureka

import (
	"context"
	"errors"

	"tributary/sources"
	"tributary/sources/eureka/wire"
)

// serverAPI reads servers. See serverClient.
type serverAPI interface {
	Servers() []string
	Listing(ctx context.Context, server string, previous *response) (*response, error)
	Changes(ctx context.Context, server string, previous *response) (*response, error)
}

// Run polls the Eureka and publishes its services until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	return newState(s).Poller.Run(ctx, sink)
}

var noReply = &response{Answer: &wire.Answer{}}

var errFewer = errors.New("the server lists fewer instances than the followed one")

// read reads a listing and recent changes. It returns to a preferred server unless that lists much less.
func (s *state) read(ctx context.Context, server string, returning bool) (catalog, error) {
	listing, err := s.servers.Listing(ctx, server, s.listing)
	least := len(s.listed) - maxLoss(len(s.listed))
	if err == nil && returning && listing != s.listing && len(listing.Instances) < least {
		err = errFewer
	}
	if err != nil {
		s.listing = noReply // the next listing counts, whatever it is
		return catalog{}, err
	}
	changes, err := s.servers.Changes(ctx, server, s.changes)
	if err != nil { // the server does not offer them: the listing counts alone
		changes = noReply
	}
	unchanged := listing == s.listing && changes.Sum == s.changes.Sum
	s.listing, s.changes = listing, changes
	if unchanged {
		return catalog{Unchanged: true}, nil
	}
	return *s.takeListing(listing.Apply(changes.Answer), changes.Instances), nil
}
