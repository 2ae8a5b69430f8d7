package file

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"tributary/internal/worker"
)

// pool reads many files at once. One that takes long is left to itself, and handed over later: it holds up neither the
// others nor the end of the source.
type pool struct {
	wake    chan struct{} // has a value when late has something to give
	workers *worker.Group // nobody waits for it: who is left to itself may outlive the source

	mu   sync.Mutex
	done []loaded
	left int // files that were left to themselves and are not done
}

const (
	// maxLeft is how many files may be left to themselves at a time with another worker in the place of each. Each has a processor as often
	// as any other worker has. Beyond that a batch ends when its workers are gone, and the files that nobody began are read another time.
	maxLeft = 16
	// mostLeft is with how many files left to themselves no more are begun: all files hang when a mount does.
	mostLeft = 4 * maxLeft
)

var errBusy = errors.New("too many files take too long at once: it is read when some of them are done")

func newPool() *pool {
	workers, _ := worker.New(context.Background())
	return &pool{wake: make(chan struct{}, 1), workers: workers}
}

// reader reads a file into buf, which it returns to be used again.
type reader func(f *loaded, buf []byte) []byte

// batch is what one call of readAll is to do.
type batch struct {
	read     reader
	patience func(f *loaded) time.Duration
	news     chan struct{} // has a value when something began or ended

	mu      sync.Mutex
	files   []loaded
	next    int               // the first that was not begun
	running map[int]time.Time // when those were begun that are being read, but for those that were left to themselves
	workers int               // that will begin another one
}

// readAll reads files. It returns them when all are done or have taken longer than their patience; those are marked as late,
// and handed over when they are done. Files that nobody is left to read have errBusy. If ctx ends, it returns the error when those that
// were begun are done or late.
func (p *pool) readAll(ctx context.Context, files []loaded, read reader, patience func(f *loaded) time.Duration) ([]loaded, error) {
	b := &batch{
		read: read, patience: patience, news: make(chan struct{}, 1),
		files: files, running: make(map[int]time.Time),
	}
	if !p.tooMany() {
		b.workers = min(runtime.GOMAXPROCS(0), len(files))
	}
	for range b.workers {
		p.workers.Go(func() { p.work(ctx, b) })
	}
	for {
		pending, wait := p.inspect(ctx, b)
		if !pending {
			return files, ctx.Err()
		}
		overdue := time.NewTimer(wait)
		select {
		case <-b.news:
		case <-overdue.C:
		}
		overdue.Stop()
	}
}

// inspect leaves those files to themselves that have taken too long, with another worker in the place of each. It reports
// whether anything is still to be waited for, and for how long at most.
func (p *pool) inspect(ctx context.Context, b *batch) (pending bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait = time.Hour
	for i, begun := range b.running {
		rest := b.patience(&b.files[i]) - time.Since(begun)
		if rest > 0 {
			wait = min(wait, rest)
			continue
		}
		delete(b.running, i)
		b.files[i] = loaded{path: b.files[i].path, late: true}
		if p.leave() {
			p.workers.Go(func() { p.work(ctx, b) })
		} else {
			b.workers--
		}
	}
	if b.workers == 0 {
		for ; b.next < len(b.files); b.next++ {
			b.files[b.next].err = errBusy
		}
	}
	return len(b.running) > 0 || b.next < len(b.files) && ctx.Err() == nil, wait
}

// leave counts one more file that is left to itself, and reports whether its worker may be replaced.
func (p *pool) leave() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left++
	return p.left <= maxLeft
}

func (p *pool) tooMany() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left >= mostLeft
}

// work reads one file after another, until there is none, ctx ends, or one was left to itself.
func (p *pool) work(ctx context.Context, b *batch) {
	defer wakeUp(b.news)
	var buf []byte
	for {
		b.mu.Lock()
		if b.next == len(b.files) || ctx.Err() != nil {
			b.workers--
			b.mu.Unlock()
			return
		}
		i := b.next
		b.next++
		b.running[i] = time.Now()
		f := b.files[i]
		b.mu.Unlock()
		wakeUp(b.news) // it may have less patience than the others

		buf = b.readOne(&f, buf)

		b.mu.Lock()
		_, waited := b.running[i]
		if waited {
			delete(b.running, i)
			b.files[i] = f
		}
		b.mu.Unlock()
		if !waited {
			p.deliver(f)
			return
		}
	}
}

// readOne reads a file. If that panics, the file is at fault.
func (b *batch) readOne(f *loaded, buf []byte) (again []byte) {
	defer func() {
		if v := recover(); v != nil {
			f.err, f.content = fmt.Errorf("read %s: panic: %v", f.path, v), nil
		}
	}()
	return b.read(f, buf)
}

// deliver hands a file over that had been left to itself.
func (p *pool) deliver(f loaded) {
	p.mu.Lock()
	p.left--
	p.done = append(p.done, f)
	p.mu.Unlock()
	wakeUp(p.wake)
}

// late returns, once, the files that had been left to themselves and are done.
func (p *pool) late() []loaded {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := p.done
	p.done = nil
	return done
}

// wakeUp makes c have a value.
func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
