package fetch

import (
	"fmt"
	"time"
)

// Follower selects one of several equal servers. It follows a server while that answers. Its user's loop owns it.
type Follower struct {
	Servers []string      // preferred ones first
	Resync  time.Duration // after which to return to the first servers
	Server  int           // the index of the followed one
	Returns time.Time     // when to return
}

// Read calls read with the followed server. If that fails, it follows the next server for which read succeeds. From
// time to time it tries the first servers first (returning). It reports whether it switched to another server.
func (f *Follower) Read(
	now time.Time, read func(server string, returning bool) error,
) (switched bool, err error) {
	first, returning := f.Server, !now.Before(f.Returns)
	if returning {
		first, f.Returns = 0, now.Add(f.Resync)
	}
	for offset := range f.Servers {
		candidate := (first + offset) % len(f.Servers)
		switched = candidate != f.Server
		failure := read(f.Servers[candidate], returning && switched)
		switch {
		case failure == nil:
			f.Server = candidate
			return switched, nil
		case err == nil:
			err = fmt.Errorf("no server answers: %w", failure)
		default:
			err = fmt.Errorf("%w; %w", err, failure)
		}
	}
	return false, err
}
