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

// In an upgrade, a new process (the successor) takes over from this one (its predecessor). It inherits the listeners, and validates its
// configuration while this process goes on. Then this process pauses: it reads no sources, and all state is on disk. The successor receives
// the objects that are served, restores its sources from the state directory, and is ready without having read anything. It locks the state
// directory, serves clients and reads the sources, and this process sends its clients away. If a step fails or takes too long, this process
// kills the successor and resumes.
//
// The command (cmd/tributary/control.go) asks the predecessor's Upgrade over HTTP. Upgrade calls upgradeTo; the successor runs
// completeUpgrade. The two speak in the steps of internal/process, which also starts the successor and passes the sockets on.

// The times of an upgrade.
const (
	pauseWithin  = 10 * time.Second       // the longest time in which nobody reads the sources, plus
	pausePerItem = 200 * time.Microsecond // this for each object, which the successor restores
	freeWithin   = 5 * time.Second        // for the system to free the state directory of a process that has ended
	upgradeDrain = 10 * time.Second       // streams end in slices over this time, so that clients do not reconnect all at once
)

// Predecessor is the process that this one takes over from.
type Predecessor interface {
	Exchange(ctx context.Context, tell, await process.Step) error
	Content() []string
}

// upgrades is the state of upgrades: of this process taking over from another, and of another taking over from this one.
type upgrades struct {
	predecessor Predecessor        // or nil
	serving     chan struct{}      // closed when this process serves clients
	registered  chan struct{}      // closed when the service manager knows this process
	upgrading   chan struct{}      // holds an element during an upgrade
	upgraded    chan struct{}      // closed when the successor serves clients
	running     context.Context    // ends when this process is told to end
	end         context.CancelFunc // of running
	pauses      chan pause         // for write

	// of this program, to start the successor
	path string
	args []string

	mu     sync.Mutex
	status admin.UpgradeStatus // guarded by mu
}

// pause asks write to stop its parts and close paused, and to start them again when resume is closed.
type pause struct{ paused, resume chan struct{} }

func newUpgrades(o Options, metrics prometheus.Registerer) *upgrades {
	s := &upgrades{
		predecessor: o.Predecessor, serving: make(chan struct{}), registered: make(chan struct{}), upgrading: make(chan struct{}, 1),
		upgraded: make(chan struct{}), pauses: make(chan pause), path: o.Program, args: o.Arguments,
	}
	s.running, s.end = context.WithCancel(context.Background())
	if s.predecessor == nil {
		close(s.serving)
		close(s.registered)
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

// state returns the state of the upgrade.
func (s *upgrades) state() admin.UpgradeStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *upgrades) note(u admin.UpgradeStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = u
}

// stop cancels a running upgrade, and waits until it has killed the successor.
func (s *upgrades) stop() {
	s.end()
	select {
	case s.upgrading <- struct{}{}:
	case <-s.upgraded:
	}
}

// whenServing makes a part begin when this process serves clients.
func (r *Relay) whenServing(part func(context.Context) error) func(context.Context) error {
	return when(r.upgrades.serving, part)
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

// completeUpgrade takes the clients over from the predecessor, as soon as they can be served or when the predecessor has ended.
func (r *Relay) completeUpgrade(ctx context.Context) error {
	p := r.upgrades.predecessor
	if p == nil {
		return nil
	}
	for _, alive := range []func(context.Context) error{r.view.Alive, r.catalogs.mcp.Alive, r.catalogs.envoy.Alive} {
		if alive(ctx) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
	}
	err := p.Exchange(ctx, process.Ready, process.StateFree)
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the same
	case err != nil:
		r.log.Warn("the previous process has ended: this one takes its place", "err", err)
	}
	if err := r.ownState(ctx); err != nil {
		return fmt.Errorf("take over from the previous process: %w", err)
	}
	r.log.Info("listening in place of the previous process", r.listeners.addresses()...)
	r.happened(history.Upgraded, "", fmt.Sprintf("process %d has taken over", os.Getpid()))
	close(r.upgrades.serving)
	_ = p.Exchange(ctx, process.Serving, process.Registered) // if it has ended, nobody can confirm it
	close(r.upgrades.registered)
	return nil
}

// ownState locks the state directory. If the predecessor was killed, its connection may end before the system frees the lock.
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

// served decodes the objects of the predecessor.
func served(p Predecessor) ([]*resource.Resource, error) {
	if p == nil || len(p.Content()) == 0 {
		return nil, nil
	}
	all := make([]*resource.Resource, 0, len(p.Content()))
	for _, piece := range p.Content()[1:] {
		r, err := lastgood.Unpack(piece)
		if err != nil {
			return nil, fmt.Errorf("objects of the previous process: %w", err)
		}
		all = append(all, r)
	}
	return all, nil
}

// Upgrade starts the program that is now at this one's path as the successor. It returns when that has taken over and this process is about
// to end; or, at the latest when ctx ends, why this one goes on.
func (r *Relay) Upgrade(ctx context.Context, by string) (done string, err error) {
	s := r.upgrades
	select {
	case <-s.serving:
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
	pid, err := r.upgradeTo(ctx)
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

// upgradeTo starts the successor and hands the clients over to it. After an error this process goes on.
func (r *Relay) upgradeTo(ctx context.Context) (pid int, err error) {
	next, err := process.StartSuccessor(r.upgrades.path, r.upgrades.args, r.listeners.raw)
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
	if err := next.Exchange(ctx, process.Restore, process.Ready); err != nil {
		return 0, err
	}
	if r.state != nil {
		_ = r.state.Close() // it is only locked
	}
	if err := next.Exchange(ctx, process.StateFree, process.Serving); err != nil {
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
	_ = next.Tell(process.Registered) // on an error it serves all the same
	close(r.upgrades.upgraded)
	return next.PID(), nil
}

// content yields a first piece, and one for each object that is served; nothing at all before the view is synced.
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

// pause stops what only one process at a time may do: read sources, change the configuration, write state. Clients are served as before.
func (r *Relay) pause(ctx context.Context) (resume func()) {
	r.reloader.pause()
	r.supervisor.Pause()
	r.sources.merged(ctx)
	p := pause{make(chan struct{}), make(chan struct{})}
	select {
	case r.upgrades.pauses <- p:
		<-p.paused
	case <-r.upgrades.running.Done(): // write ends, too
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

// write runs the other writers of state, besides the sources, until ctx ends; not during pauses.
func (r *Relay) write(ctx context.Context) error {
	for ctx.Err() == nil {
		writing, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		all.Go(func() { r.sources.sweep(writing) })
		all.Go(func() { r.vips.run(writing) })
		if r.history != nil {
			all.Go(func() { _ = r.history.Run(writing) }) // it does not fail
		}
		var p pause
		select {
		case <-ctx.Done():
		case p = <-r.upgrades.pauses:
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
