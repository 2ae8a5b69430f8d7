package sources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/prometheus/client_golang/prometheus"

	"tributary/internal/intake"
	"tributary/resource"
	"tributary/sources/guard"
	"tributary/sources/lastgood"
	"tributary/sources/transform"
)

// Options configure a Supervisor. The zero value is ready to use.
type Options struct {
	Log     *slog.Logger          // default: none
	Metrics prometheus.Registerer // default: none
	// NewBackOff makes the policy for restarts of one source. The default waits from half a second up to a minute,
	// doubling, with jitter. It begins again after a run of more than a minute.
	NewBackOff func() backoff.BackOff
	// Happened receives the events of sources, in words for people; may be nil. It must not block.
	Happened func(event, source, text string)
	// Intake bounds the memory that answers of servers take while the sources read them.
	Intake intake.Limits
	pool   *intake.Pool
	// Validate decides whether a resource may be served. The default is resource.Validate.
	Validate func(*resource.Resource) (warnings resource.Errors, err error)
}

// Spec is a source to run.
type Spec struct {
	Name    string // unique; identifies the source
	Address string // for people
	Source  Source
	// Table has the objects of this source only. With another one, a source of the same name is read again; see
	// Supervisor.Reconfigure.
	Table    Table
	Guard    guard.Settings  // the zero value has the defaults
	LastGood *lastgood.Store // stores published objects for the next process; may be nil
	// Reading identifies the settings that decide which objects are published. Stored objects of another reading are
	// served until the source was read.
	Reading string
	// Partial lets the source count as read though all of its objects are invalid.
	Partial bool
	// Transform changes published objects before validation; may be nil.
	Transform *transform.Rules
	// Lenient says that objects that break a rule of Istio's validation are served, with a warning.
	Lenient bool
	// LenientMetadata says that objects are served, with a warning, that break a rule of Kubernetes for names, labels
	// or annotations.
	LenientMetadata bool
}

// Supervisor runs sources independently of each other. It restarts a source that fails or panics with backoff; the
// objects of that source stay served. Sources may be reconfigured while it runs. All methods are safe for concurrent
// use.
type Supervisor struct {
	opts     Options
	changing sync.Mutex // held while the set of sources changes

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before
	stopped bool            // Run ends or has ended
	runners []*runner       // in the order in which they were added
}

// The events of sources.
const (
	EventHeld          = "held"           // a loss of the source is held
	EventHoldEnded     = "hold-ended"     // the loss was released, timed out, or came back
	EventUnreadable    = "unreadable"     // the source cannot be read, or only in part
	EventReadable      = "readable"       // the source can be read again
	EventQuarantined   = "quarantined"    // an object of the source is invalid
	EventQuarantineEnd = "quarantine-end" // the object is valid again, or was removed
)

// The errors of a Supervisor, wrapped with the name of the source.
var (
	ErrDuplicate = errors.New("a source of this name exists")
	ErrNotFound  = errors.New("no source of this name")
	ErrStopped   = errors.New("the supervisor has stopped")

	ErrNothingHeld = guard.ErrNothingHeld
	ErrOtherHold   = guard.ErrOtherHold
)

// NewSupervisor returns a supervisor without sources.
func NewSupervisor(opts Options) *Supervisor {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.NewBackOff == nil {
		opts.NewBackOff = defaultBackOff
	}
	if opts.Validate == nil {
		opts.Validate = resource.Validate
	}
	opts.pool = intake.NewPool(opts.Intake)
	return &Supervisor{opts: opts}
}

const (
	firstRestart = 500 * time.Millisecond
	lastRestart  = time.Minute
)

func defaultBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstRestart), backoff.WithMultiplier(2), backoff.WithMaxInterval(lastRestart),
		backoff.WithMaxElapsedTime(0))
}

// Run runs the sources until ctx ends, and returns when every one of them has. It is called once.
func (s *Supervisor) Run(ctx context.Context) error {
	if s.opts.Metrics != nil {
		collector := &collector{supervisor: s}
		if err := s.opts.Metrics.Register(collector); err != nil {
			return fmt.Errorf("register the metrics of sources: %w", err)
		}
		defer s.opts.Metrics.Unregister(collector)
	}
	s.mu.Lock()
	if s.ctx != nil {
		s.mu.Unlock()
		return errors.New("the supervisor was run before")
	}
	s.ctx = ctx
	for _, r := range s.runners {
		if !r.stopping { // else Reconfigure starts the runner
			r.start(ctx)
		}
	}
	s.mu.Unlock()

	<-ctx.Done()

	s.mu.Lock()
	s.stopped = true
	runners := slices.Clone(s.runners)
	s.mu.Unlock()
	for _, r := range runners {
		r.stop()
		r.stopBackground()
	}
	return nil
}

// AwaitRead waits until this process has read each current source as a whole, or until ctx ends.
func (s *Supervisor) AwaitRead(ctx context.Context) {
	for _, runner := range s.list() {
		select {
		case <-ctx.Done():
		case <-runner.sink.firstRead:
		}
	}
}

// Excluding returns the objects with a key that the transforms of their sources exclude.
func (s *Supervisor) Excluding(key resource.Key) []Excluded {
	var excluded []Excluded
	for _, runner := range s.list() {
		runner.sink.mu.Lock()
		excluded = append(excluded, runner.sink.ledger.excluding(key)...)
		runner.sink.mu.Unlock()
	}
	return excluded
}

// Release ends the held loss of a source on behalf of a caller, and returns its size. hold is the identity of the loss,
// or empty for any. The error is ErrNotFound, ErrNothingHeld or ErrOtherHold.
func (s *Supervisor) Release(name, hold, caller string) (objects, endpoints int, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	err = ErrNotFound
	if r := s.runnersByName()[name]; r != nil {
		objects, endpoints, err = r.sink.release(hold, caller)
	}
	if err != nil {
		err = fmt.Errorf("release source %q: %w", name, err)
	}
	return objects, endpoints, err
}

// Status returns the status of every source, in the order in which they were added.
func (s *Supervisor) Status() []Status {
	var statuses []Status
	for _, r := range s.list() {
		statuses = append(statuses, r.status(withLists))
	}
	return statuses
}

func (s *Supervisor) runnersByName() map[string]*runner {
	byName := make(map[string]*runner)
	for _, r := range s.list() {
		byName[r.name] = r
	}
	return byName
}

func (s *Supervisor) list() []*runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.runners)
}
