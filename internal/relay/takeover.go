package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"tributary/internal/handover"
	"tributary/internal/words"
	"tributary/server/envoy"
)

// One process takes over from another in an upgrade. The new one (the successor) inherits our ports, and looks whether it can run. Then we stop to read sources
// and to write state, and go on to serve what we have; the successor reads everything, and when it has, it lets clients in, and we send ours away. If it
// does not come up, the program that we are is started anew in its place: what we have stopped is not begun again here.

// The times of an upgrade.
const (
	prepareWithin = 30 * time.Second // the successor looks at its configuration
	readWithin    = 2 * time.Minute  // it reads everything
	again         = 5 * time.Second  // between attempts to start the program that we are
	handOverOver  = 10 * time.Second // streams are ended in slices, so that not all clients come to the successor at once
)

// self is the program that this process runs, also when there is another one in its place.
const self = "/proc/self/exe"

// Predecessor is the process that this one takes over from.
type Predecessor interface {
	Tell(handover.Step) error
	Await(context.Context, handover.Step) error
}

// succession is how one process follows another.
type succession struct {
	predecessor Predecessor   // or nil
	live        chan struct{} // closed when clients are ours
	upgrading   chan struct{} // has room for one
	over        chan struct{} // closed when clients are the successor's
	idle        func()        // stops to read sources and to write state, and waits until that has ended

	// of this program, for another one to be started
	path string
	args []string
}

func newSuccession(o Options) succession {
	s := succession{predecessor: o.Predecessor, live: make(chan struct{}), upgrading: make(chan struct{}, 1), over: make(chan struct{}), path: o.Program, args: o.Arguments}
	if s.predecessor == nil {
		close(s.live)
	}
	return s
}

// whenLive has a part begin when clients are ours.
func (r *Relay) whenLive(part func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-r.succession.live:
			return part(ctx)
		}
	}
}

// takeOver takes the clients over when everything is read.
func (r *Relay) takeOver(ctx context.Context) error {
	p := r.succession.predecessor
	if p == nil {
		return nil
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	yours := make(chan error, 1)
	go func() { // from the beginning: to read everything may take for ever, and the process before may end meanwhile
		yours <- p.Await(ctx, handover.Yours)
		stop()
	}()
	var err error
	if r.awaitSync(reading) {
		err = p.Tell(handover.Ready)
	}
	if err == nil {
		err = <-yours
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take over from the process before: %w", err)
	}
	r.log.Info("listening in place of the process before", r.doors.addresses()...)
	close(r.succession.live)
	return nil
}

var errUpgrading = errors.New("an upgrade is under way")

// Upgrade starts the program that is now where this one came from, and has it take over. It returns when it has, and this process is about to end; or why this one goes on.
func (r *Relay) Upgrade(ctx context.Context, by string) (done string, err error) {
	s := &r.succession
	select {
	case <-s.live:
	default:
		return "", errors.New("this process has not taken over from the one before it yet")
	}
	select {
	case s.upgrading <- struct{}{}:
	default:
		return "", errUpgrading
	}
	if os.Getpid() == 1 {
		<-s.upgrading
		return "", errors.New("this is the first process of its container, which ends with it: replace the container")
	}
	r.log.Info("upgrade begins", "program", s.path, "by", by)
	next, err := r.prepare(ctx, s.path)
	if err != nil {
		<-s.upgrading
		r.log.Error("upgrade failed: this process goes on as before", "program", s.path, "err", err)
		return "", fmt.Errorf("%s does not take over: %w; process %d goes on as before", s.path, err, os.Getpid())
	}
	streams := r.engine.Streams()
	r.rest()
	if err := r.succeed(next); err != nil {
		r.log.Error("upgrade failed: this program is started anew, and what is served stays as it is meanwhile", "program", s.path, "err", err)
		go r.rollBack() //nolint:gosec // it outlives the request
		return "", fmt.Errorf("%s did not come up: %w; the program before is started in its place", s.path, err)
	}
	return fmt.Sprintf("process %d serves in place of process %d, which hands over %s\n", next.PID(), os.Getpid(), words.Count(streams, "stream", "streams")), nil
}

// prepare starts a program that is to take over, and waits until it is prepared.
func (r *Relay) prepare(ctx context.Context, program string) (*handover.Successor, error) {
	for _, lis := range r.doors.raw {
		if unix, ok := lis.(*net.UnixListener); ok {
			unix.SetUnlinkOnClose(false) // the successor listens there
		}
	}
	next, err := handover.Start(program, r.succession.args, r.doors.raw)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, prepareWithin, fmt.Errorf("it did not look at its configuration within %s", prepareWithin))
	defer cancel()
	if err := next.Await(ctx, handover.Prepared); err != nil {
		next.Kill()
		return nil, err
	}
	return next, nil
}

// rest lets go of what only one process may have. What is served stays as it is.
func (r *Relay) rest() {
	r.succession.idle()
	for _, c := range append([]*envoy.Catalog{r.catalogs.envoy}, r.catalogs.worlds.catalogs()...) {
		c.Rest()
	}
	if r.state != nil {
		_ = r.state.Close() // it is only locked
	}
}

// succeed has a process that is prepared read everything, and then serve clients in our place.
func (r *Relay) succeed(next *handover.Successor) (err error) {
	defer func() {
		if err != nil {
			next.Kill()
		}
	}()
	ctx, cancel := context.WithTimeoutCause(context.Background(), readWithin, fmt.Errorf("it has not read everything within %s", readWithin))
	defer cancel()
	if err := next.Tell(handover.Go); err != nil {
		return err
	}
	if err := next.Await(ctx, handover.Ready); err != nil {
		return err
	}
	r.manager.Main(next.PID())
	if err := next.Tell(handover.Yours); err != nil {
		return err
	}
	close(r.succession.over)
	return nil
}

// rollBack has this program, as it is, take over from us, since we do no longer read anything.
func (r *Relay) rollBack() {
	for {
		next, err := r.prepare(context.Background(), self)
		if err == nil {
			err = r.succeed(next)
		}
		if err == nil {
			r.log.Info("the program before serves again", "process", next.PID())
			return
		}
		r.log.Error("what is served is old: nothing is read until a process takes over", "err", err, "again_in", again)
		time.Sleep(again)
	}
}
