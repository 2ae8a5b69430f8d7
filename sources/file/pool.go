package file

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"tributary/internal/worker"
)

// pool reads many files at once. It abandons a slow file, and delivers it later: a slow file delays neither the others
// nor the end of the source.
type pool struct {
	wake    chan struct{} // has a value when takeFinished has files
	workers *worker.Group // never waited for: readers of abandoned files may outlive the source

	abandoned atomic.Int64 // abandoned files that are not done

	mu       sync.Mutex
	finished []loaded
}

const (
	// maxReplaced is the limit of abandoned files whose worker is replaced: each still needs a processor. Beyond it, a
	// batch ends when its workers have ended, and the next batch reads the other files.
	maxReplaced = 16
	// maxAbandoned is the limit of abandoned files: all files hang when a mount does.
	maxAbandoned = 4 * maxReplaced
)

var errBusy = errors.New("too many files take too long at once: it is read when some of them are done")

func newPool() *pool {
	workers, _ := worker.New(context.Background())
	return &pool{wake: make(chan struct{}, 1), workers: workers}
}

// reader reads a file into buf, and returns buf for the next one.
type reader func(f *loaded, buf []byte) []byte

// batch is the work of one call of readAll.
type batch struct {
	read     reader
	patience func(f *loaded) time.Duration
	progress chan struct{} // has a value when a file was begun or done

	mu      sync.Mutex
	files   []loaded
	next    int               // the first file that was not begun
	running map[int]time.Time // start times of the files that are being read, without abandoned ones
	workers int               // workers that will begin another file
}

// readAll reads files. It returns when each is done or has exceeded its patience. The latter are marked as late, and
// delivered when they are done. Files without a worker have errBusy. If ctx ends, it returns the error of ctx when all
// begun files are done or late.
func (p *pool) readAll(
	ctx context.Context, files []loaded, read reader, patience func(f *loaded) time.Duration,
) ([]loaded, error) {
	batch := &batch{
		read: read, patience: patience, progress: make(chan struct{}, 1),
		files: files, running: make(map[int]time.Time),
	}
	if p.abandoned.Load() < maxAbandoned {
		batch.workers = min(runtime.GOMAXPROCS(0), len(files))
	}
	for range batch.workers {
		p.workers.Go(func() { p.work(ctx, batch) })
	}
	for {
		pending, wait := p.inspect(ctx, batch)
		if !pending {
			return files, ctx.Err()
		}
		overdue := time.NewTimer(wait)
		select {
		case <-batch.progress:
		case <-overdue.C:
		}
		overdue.Stop()
	}
}

// inspect abandons the files that have taken too long, and replaces their workers. It reports whether files remain to
// wait for, and for how long.
func (p *pool) inspect(ctx context.Context, batch *batch) (pending bool, wait time.Duration) {
	batch.mu.Lock()
	defer batch.mu.Unlock()
	wait = time.Hour
	for i, begun := range batch.running {
		rest := batch.patience(&batch.files[i]) - time.Since(begun)
		if rest > 0 {
			wait = min(wait, rest)
			continue
		}
		delete(batch.running, i)
		batch.files[i] = loaded{path: batch.files[i].path, late: true}
		if p.abandoned.Add(1) <= maxReplaced {
			p.workers.Go(func() { p.work(ctx, batch) })
		} else {
			batch.workers--
		}
	}
	if batch.workers == 0 {
		for ; batch.next < len(batch.files); batch.next++ {
			batch.files[batch.next].err = errBusy
		}
	}
	return len(batch.running) > 0 || batch.next < len(batch.files) && ctx.Err() == nil, wait
}

// work reads one file after another, until all are begun, ctx ends, or its file was abandoned.
func (p *pool) work(ctx context.Context, batch *batch) {
	defer wakeUp(batch.progress)
	var buf []byte
	for {
		batch.mu.Lock()
		if batch.next == len(batch.files) || ctx.Err() != nil {
			batch.workers--
			batch.mu.Unlock()
			return
		}
		i := batch.next
		batch.next++
		batch.running[i] = time.Now()
		loaded := batch.files[i]
		batch.mu.Unlock()
		wakeUp(batch.progress) // its patience may end first

		buf = batch.readOne(&loaded, buf)

		batch.mu.Lock()
		_, waited := batch.running[i]
		if waited {
			delete(batch.running, i)
			batch.files[i] = loaded
		}
		batch.mu.Unlock()
		if !waited {
			p.deliver(loaded)
			return
		}
	}
}

// readOne reads a file. A panic is an error of the file.
func (b *batch) readOne(file *loaded, buf []byte) (again []byte) {
	err := worker.Do(func() error { again = b.read(file, buf); return nil })
	if err != nil {
		file.err, file.content = fmt.Errorf("read %s: %w", file.path, err), nil
	}
	return again
}

// deliver delivers an abandoned file.
func (p *pool) deliver(file loaded) {
	p.abandoned.Add(-1)
	p.mu.Lock()
	p.finished = append(p.finished, file)
	p.mu.Unlock()
	wakeUp(p.wake)
}

// takeFinished returns, once, the abandoned files that are done.
func (p *pool) takeFinished() []loaded {
	p.mu.Lock()
	defer p.mu.Unlock()
	finished := p.finished
	p.finished = nil
	return finished
}

// wakeUp puts a value into c.
func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
