package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/internal/history"
	"tributary/internal/process"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/sources/lastgood"
)

// In an upgrade, a new process (the successor) takes over from this one. It inherits the listeners, and validates its configuration while
// this process goes on. Then this process pauses: it reads no sources, and all state is on disk. The successor receives the objects that
// are served, restores its sources from the state directory, and is ready without having read anything. It locks the state directory,
// serves clients and reads the sources, and this process sends its clients away. If a step fails or takes too long, this process kills the
// successor and resumes.

// The times of an upgrade.
const (
	pauseWithin  = 10 * time.Second       // nobody reads the sources for longer, but for
	pausePerItem = 200 * time.Microsecond // each object, which the successor restores
	freeWithin   = 5 * time.Second        // the state directory of a process that has ended is free
	handOverOver = 10 * time.Second       // streams are ended in slices, so that not all clients come to the successor at once
)

// Predecessor is the process that this one takes over from.
type Predecessor interface {
	Exchange(ctx context.Context, tell, await process.Step) error
	Content() []string
}

// handoff is the state of upgrades: of this process taking over from another, and of another taking over from this one.
type handoff struct {
	predecessor Predecessor        // or nil
	live        chan struct{}      // closed when this process serves the clients
	main        chan struct{}      // closed when the service manager takes this process for the service
	upgrading   chan struct{}      // has room for one
	over        chan struct{}      // closed when the successor serves the clients
	running     context.Context    // ends when this process is told to end
	end         context.CancelFunc // of running
	pauses      chan pause         // for write

	// of this program, for another one to be started
	path string
	args []string

	mu     sync.Mutex
	status admin.UpgradeStatus // guarded by mu
}

// pause asks write to end its parts and close paused, and to start them again when resume is closed.
type pause struct{ paused, resume chan struct{} }

func newHandoff(o Options, metrics prometheus.Registerer) *handoff {
	s := &handoff{
		predecessor: o.Predecessor, live: make(chan struct{}), main: make(chan struct{}), upgrading: make(chan struct{}, 1),
		over: make(chan struct{}), pauses: make(chan pause), path: o.Program, args: o.Arguments,
	}
	s.running, s.end = context.WithCancel(context.Background())
	if s.predecessor == nil {
		close(s.live)
		close(s.main)
	}
	gauge := func(name, help string, is func(admin.UpgradeStatus) bool) {
		metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tributary_upgrade_" + name, Help: help}, func() float64 {
			if is(s.state()) {
				return 1
			}
			return 0
		}))
	}
	gauge("in_progress", "1 while another process prepares to take over from this one.",
		func(u admin.UpgradeStatus) bool { return u.Since != nil })
	gauge("failed", "1 if the last upgrade failed, and this process goes on.",
		func(u admin.UpgradeStatus) bool { return u.Failed != nil })
	return s
}

// state says how the upgrade stands.
func (s *handoff) state() admin.UpgradeStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *handoff) note(u admin.UpgradeStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = u
}

// stop ends an upgrade that is under way, and waits until that has killed the process that it had started.
func (s *handoff) stop() {
	s.end()
	select {
	case s.upgrading <- struct{}{}:
	case <-s.over:
	}
}

// whenLive has a part begin when this process serves the clients.
func (r *Relay) whenLive(part func(context.Context) error) func(context.Context) error {
	return when(r.handoff.live, part)
}

func when(begins <-chan struct{}, part func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-begins:
			return part(ctx)
		}
	}
}

// takeOver takes the clients over as soon as they can be served, or when the process before has ended.
func (r *Relay) takeOver(ctx context.Context) error {
	p := r.handoff.predecessor
	if p == nil {
		return nil
	}
	for _, alive := range []func(context.Context) error{r.view.Alive, r.catalogs.mcp.Alive, r.catalogs.envoy.Alive} {
		if alive(ctx) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
	}
	err := p.Exchange(ctx, process.Ready, process.Yours)
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the same
	case err != nil:
		r.log.Warn("the process before has ended: this one goes on in its place", "err", err)
	}
	if err := r.ownState(ctx); err != nil {
		return fmt.Errorf("take over from the process before: %w", err)
	}
	r.log.Info("listening in place of the process before", r.listeners.addresses()...)
	r.happened(history.Upgraded, "", fmt.Sprintf("process %d has taken over", os.Getpid()))
	close(r.handoff.live)
	_ = p.Exchange(ctx, process.Serving, process.Main) // if it has ended, nobody else can say it
	close(r.handoff.main)
	return nil
}

// ownState locks the state directory. If the process before was killed, the system closes its files one after another, and its connection
// may end before the lock is free.
func (r *Relay) ownState(ctx context.Context) error {
	for deadline := time.Now().Add(freeWithin); r.state != nil; {
		err := r.state.Own()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// served decodes what the process before served.
func served(p Predecessor) ([]*resource.Resource, error) {
	if p == nil || len(p.Content()) == 0 {
		return nil, nil
	}
	all := make([]*resource.Resource, 0, len(p.Content()))
	for _, piece := range p.Content()[1:] {
		r, err := lastgood.Unpack(piece)
		if err != nil {
			return nil, fmt.Errorf("what the process before serves: %w", err)
		}
		all = append(all, r)
	}
	return all, nil
}

// Upgrade starts the program that is now where this one came from, and has it take over. It returns when it has, and this process is
// about to end; or why this one goes on as before, at the latest when ctx ends.
func (r *Relay) Upgrade(ctx context.Context, by string) (done string, err error) {
	s := r.handoff
	select {
	case <-s.live:
	default:
		return "", admin.ErrUpgrading
	}
	select {
	case s.upgrading <- struct{}{}:
	default:
		return "", admin.ErrUpgrading
	}
	if os.Getpid() == 1 {
		<-s.upgrading
		return "", errors.New("this is the first process of its container, which ends with it: replace the container")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.running, cancel)()
	r.log.Info("upgrade begins", "program", s.path, "by", by)
	begun := time.Now()
	s.note(admin.UpgradeStatus{Since: &begun})
	streams := r.engine.Streams()
	pid, err := r.handOver(ctx)
	if err != nil {
		err = fmt.Errorf("%s does not take over: %w; process %d goes on as before", s.path, err, os.Getpid())
		now := time.Now()
		s.note(admin.UpgradeStatus{Failed: &now, Error: err.Error()})
		r.log.Error("upgrade failed", "err", err)
		r.happened(history.UpgradeFailed, "", err.Error())
		<-s.upgrading
		return "", err
	}
	handed := words.Count(streams, "stream", "streams")
	return fmt.Sprintf("process %d serves in place of process %d, which hands over %s\n", pid, os.Getpid(), handed), nil
}

// handOver starts a program, and has it serve in our place. After an error all is as before.
func (r *Relay) handOver(ctx context.Context) (pid int, err error) {
	next, err := process.StartSuccessor(r.handoff.path, r.handoff.args, r.listeners.raw)
	if err != nil {
		return 0, err
	}
	resume := func() {}
	defer func() {
		if err != nil {
			next.Kill()
			resume()
		}
	}()
	if err := next.Await(ctx, process.Prepared); err != nil {
		return 0, err
	}
	limit := pauseWithin + time.Duration(r.view.Snapshot().Len())*pausePerItem
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not serve within %s of its start", limit))
	defer cancel()
	resume = r.pause(ctx)
	_ = next.Give(ctx, r.content) // this fails if the process has ended or ctx has: Exchange returns why
	if err := next.Exchange(ctx, process.Go, process.Ready); err != nil {
		return 0, err
	}
	if r.state != nil {
		_ = r.state.Close() // it is only locked
	}
	if err := next.Exchange(ctx, process.Yours, process.Serving); err != nil {
		return 0, err
	}
	for _, lis := range r.listeners.raw {
		if unix, ok := lis.(*net.UnixListener); ok {
			unix.SetUnlinkOnClose(false) // the successor listens there
		}
	}
	if r.reloader.isLate() {
		next.Hangup()
	}
	r.manager.Main(next.PID())
	_ = next.Tell(process.Main) // it serves in any case
	close(r.handoff.over)
	return next.PID(), nil
}

// content yields what is served: a piece that says so, and one for each object. It yields nothing if that is not known yet.
func (r *Relay) content(yield func(string) bool) {
	if !r.view.Synced() || !yield("served") {
		return
	}
	for one := range r.view.Snapshot().All() {
		if !yield(lastgood.Pack(one)) {
			return
		}
	}
}

// pause ends what only one process at a time may do: read sources, change the configuration, and write state. Clients are served as before.
func (r *Relay) pause(ctx context.Context) (resume func()) {
	r.reloader.pause()
	r.supervisor.Pause()
	r.sources.merged(ctx)
	p := pause{make(chan struct{}), make(chan struct{})}
	select {
	case r.handoff.pauses <- p:
		<-p.paused
	case <-r.handoff.running.Done(): // write ends, too
	}
	return func() {
		if r.state != nil {
			if err := r.state.Own(); err != nil {
				r.log.Error("the state directory cannot be locked again", "err", err) // each store does so before it writes
			}
		}
		close(p.resume)
		r.supervisor.Resume()
		r.reloader.resume()
	}
}

// write runs what writes state besides the sources until ctx ends, but for pauses.
func (r *Relay) write(ctx context.Context) error {
	for ctx.Err() == nil {
		writing, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		all.Go(func() { r.sources.sweep(writing) })
		all.Go(func() { r.vips.run(writing) })
		all.Go(func() { _ = r.remember(writing) }) // neither fails
		var p pause
		select {
		case <-ctx.Done():
		case p = <-r.handoff.pauses:
		}
		stop()
		all.Wait()
		if p.paused != nil {
			close(p.paused)
			select {
			case <-ctx.Done():
			case <-p.resume:
			}
		}
	}
	return nil
}
