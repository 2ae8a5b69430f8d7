// Package intake limits the memory that answers of servers take while they are read: of one answer, of a source, and of
// the process. It counts decompressed bytes. Readers of HTTP and gRPC read answers through Bound, Read or a Codec.
//
// An answer waits while the answers of its source, or of all sources, take all memory. The oldest answer never waits,
// so that the answers cannot wait for each other. The others leave room for it: as much as the largest answer takes. A
// source that takes little does not wait for other sources.
package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits are in bytes. Zero is the default, and -1 no limit.
type Limits struct {
	Answer  int // for one answer, and for all answers that a source reads at the same time, except its oldest one
	Memory  int // for all answers of all sources; at least twice Answer
	Objects int // for the objects that a source stores, see Keep
}

// Defaults of Limits.
const (
	DefaultAnswer  = 256 << 20
	DefaultMemory  = 512 << 20
	DefaultObjects = 1 << 30
)

// share is the memory that each source may take without a wait for other sources, even if one of them takes all memory.
const share = 16 << 20

func (l Limits) withDefaults() Limits {
	for limit, standard := range map[*int]int{
		&l.Answer: DefaultAnswer, &l.Memory: DefaultMemory, &l.Objects: DefaultObjects,
	} {
		if *limit = cmp.Or(*limit, standard); *limit < 0 {
			*limit = math.MaxInt
		}
	}
	return l
}

// ErrLimit says that a server sends more than a limit allows.
var ErrLimit = errors.New("takes more than")

// patience is how long an answer waits for memory.
const patience = 30 * time.Second

// Pool is the memory of all sources. It is safe for concurrent use.
type Pool struct {
	limits Limits

	mu      sync.Mutex
	taken   int
	leases  int             // the number of leases that have taken memory, see Lease.age
	holders map[*Lease]bool // the roots with memory
	freed   chan struct{}   // closed when memory is released
}

// NewPool returns a pool.
func NewPool(limits Limits) *Pool {
	return &Pool{limits: limits.withDefaults(), holders: make(map[*Lease]bool), freed: make(chan struct{})}
}

// Taken returns how many bytes are taken.
func (p *Pool) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// A source may read readBurst decompressed bytes without a pause, and readRate bytes a second afterwards, so that an
// endless answer does not take a whole processor.
const (
	readBurst = 64 << 20
	readRate  = 8 << 20
)

// budget bounds the reads of one source. Pool.mu guards taken and objects.
type budget struct {
	pool    *Pool
	pace    *rate.Limiter
	taken   int
	objects int // bytes, see Keep
}

func newBudget(pool *Pool) *budget {
	return &budget{pool: pool, pace: rate.NewLimiter(readRate, readBurst)}
}

type (
	budgetKey struct{}
	leaseKey  struct{}
)

// Source returns a context for all that one source reads.
func (p *Pool) Source(ctx context.Context) context.Context {
	return context.WithValue(ctx, budgetKey{}, newBudget(p))
}

// Keep counts the bytes of an object or a list that a source stores: the size changes from before to after. If the
// source would exceed its limit, Keep returns an error and does not count the change.
func Keep(ctx context.Context, before, after int) error {
	source := budgetOf(ctx)
	source.pool.mu.Lock()
	defer source.pool.mu.Unlock()
	if limit := source.pool.limits.Objects; after > before && source.objects+after-before > limit {
		return fmt.Errorf("the memory of the objects %w %d bytes (limits.objectBytes)", ErrLimit, limit)
	}
	source.objects += after - before
	return nil
}

// budgetOf returns the budget of a context. Without a source, as in commands, each answer has the default limits.
func budgetOf(ctx context.Context) *budget {
	if source, ok := ctx.Value(budgetKey{}).(*budget); ok {
		return source
	}
	return newBudget(NewPool(Limits{}))
}

// Lease is the memory of one answer. Only Release may be called by several goroutines.
type Lease struct {
	budget *budget
	root   *Lease // the lease itself; for a page, the lease of its list

	// guarded by Pool.mu
	taken int
	sum   int // only in a root: with all its pages
	age   int // only in a root: a sequence number, higher for a younger one
}

// Begin begins an answer. Answers that are read with the returned context are its pages, and count with it as one
// answer.
func Begin(ctx context.Context) (context.Context, *Lease) {
	lease := &Lease{budget: budgetOf(ctx)}
	if list, ok := ctx.Value(leaseKey{}).(*Lease); ok {
		lease.budget, lease.root = list.budget, list.root
		return ctx, lease
	}
	lease.root = lease
	return context.WithValue(ctx, leaseKey{}, lease), lease
}

// Take waits until there is memory, and takes it.
func (l *Lease) Take(ctx context.Context, bytes int) error {
	var late <-chan time.Time
	for {
		freed, err := l.take(bytes)
		if freed == nil {
			return err
		}
		if late == nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for memory, since other answers take all of it (limits.answerMemory): %w",
				context.Cause(ctx))
		case <-late:
			return fmt.Errorf("no memory for the answer within %s, since others take all of it (limits.answerMemory)", patience)
		}
	}
}

// pace waits until the source may read on after n bytes.
func (l *Lease) pace(ctx context.Context, n int) error {
	if err := l.budget.pace.WaitN(ctx, n); err != nil {
		return fmt.Errorf("reading slowly after %d MiB: %w", readBurst>>20, err)
	}
	return nil
}

// Reader returns a reader of r that counts the bytes.
func (l *Lease) Reader(ctx context.Context, r io.Reader) io.Reader { return &reader{r, ctx, l} }

type reader struct {
	from  io.Reader
	ctx   context.Context //nolint:containedctx // of the request
	lease *Lease
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p[:min(len(p), chunkBytes)])
	return n, cmp.Or(r.lease.pace(r.ctx, n), r.lease.Take(r.ctx, n), err)
}

// chunkBytes are read at once.
const chunkBytes = 64 << 10

// take takes memory or returns an error. If there is not enough memory, it returns a channel that closes when another
// answer releases some.
func (l *Lease) take(bytes int) (freed <-chan struct{}, err error) {
	pool, root := l.budget.pool, l.root
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if root.sum+bytes > pool.limits.Answer {
		return nil, fmt.Errorf("the answer %w %d bytes of memory, decompressed and decoded (limits.answerBytes)", ErrLimit,
			pool.limits.Answer)
	}
	if root.sum == 0 { // an answer that holds nothing yet is younger than all holders
		pool.leases++
		root.age = pool.leases
	}
	isOldest, isOldestOfSource := true, true
	for holder := range pool.holders {
		if holder.age < root.age {
			isOldest = false
			isOldestOfSource = isOldestOfSource && holder.budget != l.budget
		}
	}
	sourceTaken := l.budget.taken + bytes
	poolIsFull := pool.taken+bytes > pool.limits.Memory-pool.limits.Answer && sourceTaken > share
	sourceIsFull := sourceTaken > pool.limits.Answer
	if !isOldest && poolIsFull || !isOldestOfSource && sourceIsFull {
		return pool.freed, nil
	}
	l.add(bytes)
	return nil, nil
}

// add adds bytes to all counts. The caller holds Pool.mu.
func (l *Lease) add(bytes int) {
	l.taken += bytes
	l.root.sum += bytes
	l.budget.taken += bytes
	l.budget.pool.taken += bytes
	if l.root.sum > 0 {
		l.budget.pool.holders[l.root] = true
	} else {
		delete(l.budget.pool.holders, l.root)
	}
}

// Release gives the memory back. The lease can be used again.
func (l *Lease) Release() {
	if l == nil {
		return
	}
	pool := l.budget.pool
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if l.taken > 0 {
		l.add(-l.taken)
		close(pool.freed)
		pool.freed = make(chan struct{})
	}
}
