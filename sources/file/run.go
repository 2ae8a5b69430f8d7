package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/btree"

	"tributary/internal/words"
	"tributary/internal/worker"
	"tributary/sources"
	"tributary/sources/derive"
)

// Run publishes the files until ctx ends. It gives up on nothing: what cannot be read is reported and tried again. It does
// not wait for files that take long: the goroutines that read them end when they are done, and touch nothing that is shared.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	workers, ctx := worker.New(ctx)
	defer workers.Stop()
	watch := newWatcher(s.disk, s.blind, workers)
	defer watch.close()
	r := &run{
		disk: s.disk, root: s.root, settings: s.settings, sink: sink, watch: watch,
		loader: &loader{
			disk: s.disk, root: s.root, shown: s.shown, decode: s.decode, parse: s.parse,
			maxSize: s.settings.MaxFileBytes, followLinks: s.settings.FollowLinks, confirm: func(string, string) bool { return false },
			deriving: s.settings.Derive != nil,
		},
		patience: s.patience, pool: newPool(), memory: newMemory(), busy: make(map[string]bool), blank: make(map[string]known),
		pending: make(map[string]bool), troubles: make(map[string]trouble),
	}
	if sink, ok := sink.(sources.Confirmer); ok {
		r.loader.confirm = sink.Confirm
	}
	if s.settings.Derive != nil {
		r.derived = derive.NewSet(*s.settings.Derive)
	}
	for _, group := range sink.Groups() {
		if r.derived != nil && group == derive.Group {
			r.derived.Inherited = true
			continue
		}
		r.files.Set(group, known{doubtful: true})
		r.anything = true
	}
	err := r.loop(ctx)
	watch.close() // which ends the worker
	return cmp.Or(workers.Wait(), err)
}

// run is the state of one run. All of it is owned by the loop.
type run struct {
	disk     disk
	root     string
	settings Settings
	sink     sources.Sink
	watch    *watcher
	loader   *loader
	patience func(size int64, synced bool) time.Duration

	files    btree.Map[string, known] // what is published, or was found not to be readable
	memory   *memory
	derived  *derive.Set // nil if nothing is
	missing  grace
	blank    map[string]known   // files that have nothing but white space and comments, which is as good as empty
	troubles map[string]trouble // what cannot be read; what is known of it stays

	pool *pool
	busy map[string]bool // files that take long to read; those that are true are to be looked at again after that

	pending  map[string]bool // paths to look at; those that are true are to be read even if they look the same
	first    time.Time       // when pending stopped being empty
	rootless bool            // the last look failed, so the next one must be at everything
	anything bool            // something was read, by this run or an earlier one
	synced   bool            // everything has been published once
	device   uint64          // on which the root was when something was read from it
}

func (r *run) loop(ctx context.Context) error {
	rescan := time.NewTicker(r.settings.RescanInterval)
	defer rescan.Stop()
	due := time.NewTimer(0) // the first look is due at once
	defer due.Stop()
	armed := true
	arm := func(wait time.Duration) {
		due.Reset(wait)
		armed = true
	}
	r.enqueue("", false)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.watch.wake:
			paths, lost := r.watch.changed()
			for p := range paths {
				r.enqueue(p, true)
			}
			if lost {
				r.enqueue("", false)
			}
			quiet := time.Now().Add(r.settings.QuietDelay)
			if last := r.first.Add(r.settings.MaxDelay); quiet.After(last) {
				quiet = last
			}
			arm(time.Until(quiet))
		case <-r.pool.wake:
			if r.finish() {
				arm(r.settings.QuietDelay)
			}
		case <-rescan.C:
			r.enqueue("", false)
			if !armed {
				arm(0)
			}
		case <-due.C:
			armed = false
			again, err := r.catchUp(ctx)
			if err != nil {
				return err
			}
			if again {
				arm(r.settings.QuietDelay)
			}
		}
	}
}

// enqueue has path looked at the next time.
func (r *run) enqueue(path string, read bool) {
	if len(r.pending) == 0 {
		r.first = time.Now()
	}
	r.pending[path] = r.pending[path] || read
	if r.rootless {
		r.pending[""] = false
	}
}

// catchUp looks at what is pending and publishes what has changed, in one commit. It wants to be called again after the
// quiet delay if something is not certain yet: a file is missing, but not for long, or was written to while it was read.
func (r *run) catchUp(ctx context.Context) (again bool, err error) {
	if len(r.pending) == 0 {
		return false, nil
	}
	seen, err := look(ctx, r.disk, r.root, r.settings.FollowLinks, r.watch, r.pending)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err == nil && r.device != 0 && seen.device != r.device {
		if _, everything := r.pending[""]; !everything {
			r.enqueue("", false)
			return true, nil
		}
		if len(seen.files) == 0 && r.files.Len() > 0 {
			err = fmt.Errorf("%s is empty, and on another file system than before; is its own not mounted?", r.root)
		}
	}
	if r.rootless = err != nil; r.rootless {
		clear(r.pending)
		r.reportRoot(err)
		return false, nil
	}
	doubtful := r.empty(seen)
	read, missing := compare(&r.files, r.pending, seen)
	read = append(read, doubtful...)
	gone, young := r.missing.judge(missing, time.Now(), func(p string) time.Duration {
		if seen.fleeting(p) {
			return r.settings.EmptyGrace
		}
		return r.settings.QuietDelay
	})
	missed := slices.ContainsFunc(young, func(p string) bool { return !seen.fleeting(p) })
	patient := time.Since(r.first) < r.settings.MaxDelay
	if missed && patient && r.synced {
		return true, nil // a file that is renamed is published and withdrawn in one commit
	}

	results, err := r.load(ctx, read, seen)
	if err != nil {
		return false, err
	}
	before := maps.Clone(r.troubles)
	maps.DeleteFunc(r.troubles, func(p string, _ trouble) bool {
		_, busy := r.busy[p]
		return !busy && covered(r.pending, p)
	})
	for p, err := range seen.blocked {
		r.troubles[p] = trouble{err: err, unread: true}
	}
	for p, err := range seen.refused {
		r.troubles[p] = trouble{err: err, unread: Reads(path.Base(p))} // a directory in a circle is empty
	}
	clear(r.pending)
	complete := !missed || !patient // what is missing must be withdrawn first: the guard goes by that
	var contents []sources.Content
	for _, f := range results {
		if f.changed && patient {
			r.enqueue(f.path, true)
			complete = false
			continue
		}
		if f.err == nil && !f.late {
			r.device = seen.device
		}
		contents = append(contents, r.accept(f, before[f.path])...)
	}
	for _, p := range gone {
		if slices.ContainsFunc(results, func(f loaded) bool { return f.path == p && !errors.Is(f.err, errBlank) }) {
			continue // it was blank, and is written to
		}
		r.files.Delete(p)
		r.memory.set(p, nil)
		if r.derived != nil {
			r.derived.Remove(p)
		}
		contents = append(contents, sources.Content{Group: p})
	}
	for _, p := range young {
		r.enqueue(p, false)
	}
	r.publish(contents)
	if complete && !r.synced && len(r.unread()) == 0 {
		r.synced = true
		r.sink.Synced()
	}
	r.report()
	return len(r.pending) > 0, nil
}

// empty has the files count as emptied that were found to be blank and are as they were. It returns those of which the stamp may not show
// that they are not.
func (r *run) empty(seen sighting) (doubtful []string) {
	for p, k := range r.blank {
		if !covered(r.pending, p) {
			continue
		}
		if now, there := seen.files[p]; !there || now != k.stamp {
			delete(r.blank, p)
			continue
		}
		delete(seen.files, p)
		seen.emptied[p] = true
		if k.doubtful {
			doubtful = append(doubtful, p)
		}
	}
	return doubtful
}

// load reads files. Those that take long go on being read, and are not begun again before they are done.
func (r *run) load(ctx context.Context, paths []string, seen sighting) ([]loaded, error) {
	var files []loaded
	for _, p := range paths {
		if _, busy := r.busy[p]; busy {
			r.busy[p] = true
			continue
		}
		k, _ := r.files.Get(p)
		files = append(files, loaded{path: p, known: k, decoded: r.memory.files[p]})
	}
	r.loader.single = seen.single
	l := *r.loader // those that take long keep theirs
	return r.pool.readAll(ctx, files, l.loadOne, func(f *loaded) time.Duration {
		return r.patience(seen.files[f.path].size, r.synced)
	})
}

// patience is how long the others wait for a file of that size, since what changes together is to be published together: many
// times as long as usual ones take. Before anything is served there is no hurry.
func patience(size int64, synced bool) time.Duration {
	const perSecond = 4 << 20
	if synced {
		return time.Second + time.Duration(size)*time.Second/perSecond
	}
	return 10 * (time.Second + time.Duration(size)*time.Second/perSecond)
}

// accept notes what became of a file, which had a trouble before, and returns what there is to publish.
func (r *run) accept(f loaded, before trouble) []sources.Content {
	switch {
	case f.late:
		r.busy[f.path] = false
		return r.refuse(f, fmt.Errorf("%s takes long to read, and is still being read", r.loader.in(r.root, f.path)), before)
	case errors.Is(f.err, errBlank):
		r.blank[f.path] = f.known
		r.enqueue(f.path, false)
		return nil
	case errors.Is(f.err, fs.ErrNotExist), errors.Is(f.err, errEmptied): // since the look; the next one will tell
		r.enqueue(f.path, false)
		return nil
	case f.err != nil:
		return r.refuse(f, f.err, before)
	}
	r.anything = true
	delete(r.blank, f.path)
	r.files.Set(f.path, f.known)
	if f.content == nil {
		return nil
	}
	r.memory.set(f.path, f.decoded)
	if r.derived != nil {
		r.derived.Replace(f.path, f.content)
	}
	return []sources.Content{*f.content}
}

// publish publishes contents, and what is derived of all files, in one commit.
func (r *run) publish(contents []sources.Content) {
	if r.derived != nil {
		if derived, changed := r.derived.Content(r.unknownFile); changed {
			contents = append(contents, derived)
		}
	}
	if len(contents) > 0 {
		_ = r.sink.ReplaceAll(contents) // the sink keeps and tells what it refused
	}
}

// refuse notes that a file cannot be read.
func (r *run) refuse(f loaded, err error, before trouble) []sources.Content {
	r.troubles[f.path] = trouble{err: err, file: true}
	r.files.Set(f.path, known{stamp: f.known.stamp, doubtful: true})
	if before.err != nil && before.err.Error() == err.Error() {
		return nil
	}
	return []sources.Content{r.loader.rejected(f.path, err)}
}

// finish publishes what took long to read and is done. It reports whether there is something to look at.
func (r *run) finish() bool {
	var contents []sources.Content
	for _, f := range r.pool.late() {
		_, there := r.files.Get(f.path)
		stale := r.busy[f.path] || !there || f.changed || f.err == nil && f.content == nil
		delete(r.busy, f.path)
		delete(r.troubles, f.path)
		if stale {
			r.enqueue(f.path, true)
			continue
		}
		contents = append(contents, r.accept(f, trouble{})...)
	}
	r.publish(contents)
	if !r.synced {
		r.enqueue("", false)
	}
	r.report()
	return len(r.pending) > 0
}

// reportRoot reports that nothing can be read at all.
func (r *run) reportRoot(err error) {
	switch {
	case errors.Is(err, fs.ErrPermission):
		r.sink.Report(sources.Health{State: sources.Denied, Message: err.Error()})
	case errors.Is(err, fs.ErrNotExist):
		r.sink.Report(sources.Health{State: sources.Unreachable, Message: fmt.Sprintf("%s does not exist", r.root)})
	default:
		r.sink.Report(sources.Health{State: sources.Unreachable, Message: err.Error()})
	}
}

// trouble is why something cannot be read.
type trouble struct {
	err error
	// unread says that it is not known what there is: a directory that cannot be listed, or a link that may lead to one. A
	// file that cannot be read is known, and quarantined by its name.
	unread bool
	file   bool
}

// unread returns what was never read and keeps the source from being synced, in order: what cannot be looked into, unless
// something of it is known from an earlier time, and the files if not one of them could be read.
func (r *run) unread() (paths []string) {
	if r.settings.PartialStart {
		return nil
	}
	for p, t := range r.troubles {
		if t.unread && !r.holds(p) || t.file && !r.anything {
			paths = append(paths, p)
		}
	}
	return inOrder(paths)
}

// inDoubt returns what was read once and cannot be at present, and why.
func (r *run) inDoubt() map[string]string {
	all := make(map[string]string)
	for p := range r.missing {
		all[p] = fmt.Sprintf("%s is empty or missing, for a moment perhaps; what it had is served meanwhile, for emptyGrace at most",
			r.loader.in(r.root, p))
	}
	for p, t := range r.troubles {
		all[p] = t.err.Error()
	}
	return all
}

// report reports what can be read but in part.
func (r *run) report() {
	if sink, ok := r.sink.(sources.Doubter); ok {
		sink.Unread(r.inDoubt())
	}
	var lines []string
	if unread := r.unread(); !r.synced && len(unread) > 0 {
		lines = append(lines, fmt.Sprintf("not synced, because not everything could be read yet (partialStart: true does without): %d missing",
			len(unread)))
	}
	for _, p := range slices.Sorted(maps.Keys(r.troubles)) {
		t := r.troubles[p]
		if r.settings.PartialStart && errors.Is(t.err, errDangling) && !Reads(p[strings.LastIndexByte(p, '/')+1:]) && !r.holds(p) {
			continue // a link to nowhere that would not have been read
		}
		lines = append(lines, t.err.Error())
	}
	if n, err := r.watch.blindness(); err != nil {
		lines = append(lines, fmt.Sprintf("changes in %s are noticed only every %s: %s", words.Count(n, "directory", "directories"),
			r.settings.RescanInterval, err))
	}
	if len(lines) == 0 {
		r.sink.Report(sources.Health{State: sources.Healthy})
		return
	}
	const shown = 5
	if n := len(lines) - shown; n > 0 {
		lines = append(lines[:shown], fmt.Sprintf("and %d more", n))
	}
	r.sink.Report(sources.Health{State: sources.Degraded, Message: strings.Join(lines, "; ")})
}

// holds reports whether something is known at path or below it.
func (r *run) holds(path string) bool {
	if _, ok := r.files.Get(path); ok {
		return true
	}
	found := false
	r.files.Ascend(path+"/", func(p string, _ known) bool {
		found = within(p, path)
		return false
	})
	return found
}
