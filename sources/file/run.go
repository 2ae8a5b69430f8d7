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

// Run publishes the files until ctx ends. It reports unreadable files and tries them again. It does not wait for slow
// files: the goroutines that read them share no state, and end when they are done.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	workers, ctx := worker.New(ctx)
	defer workers.Stop()
	watch := newWatcher(s.disk, s.blind, workers)
	defer watch.close()
	run := &run{
		disk: s.disk, root: s.root, settings: s.settings, sink: sink, watch: watch,
		loader: &loader{
			disk: s.disk, root: s.root, shown: s.shown, decode: s.decode, parse: s.parse,
			maxSize: s.settings.MaxFileBytes, followLinks: s.settings.FollowLinks,
			confirm:  func(string, string) bool { return false },
			deriving: s.settings.Derive != nil,
		},
		patience: s.patience, pool: newPool(), memory: newMemory(),
		busy: make(map[string]bool), blank: make(map[string]fileState),
		pending: make(map[string]bool), troubles: make(map[string]trouble),
	}
	if sink, ok := sink.(sources.Confirmer); ok {
		run.loader.confirm = sink.Confirm
	}
	if s.settings.Derive != nil {
		run.derived = derive.NewSet(*s.settings.Derive)
	}
	for _, group := range sink.Groups() {
		if run.derived != nil && group == derive.Group {
			run.derived.Inherited = true
			continue
		}
		run.files.Set(group, fileState{doubtful: true})
		run.hasReadAny = true
	}
	err := run.loop(ctx)
	watch.close() // ends the worker
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

	files    btree.Map[string, fileState] // published and unreadable files
	memory   *memory
	derived  *derive.Set // nil without derive
	missing  grace
	blank    map[string]fileState // files of white space and comments only, which count as empty
	troubles map[string]trouble   // unreadable paths; their last objects stay

	pool *pool
	busy map[string]bool // slow files; true: look at it again afterwards

	pending    map[string]bool // paths to look at; true: read it even if its stamp is the same
	first      time.Time       // the time of the first pending path
	rootFailed bool            // the last look failed, so the next one must be a full one
	hasReadAny bool            // by this run or an earlier one
	synced     bool            // all files were published once
	device     uint64          // of the root at the last read
}

func (r *run) loop(ctx context.Context) error {
	rescan := time.NewTicker(r.settings.RescanInterval)
	defer rescan.Stop()
	timer := time.NewTimer(0) // the first look is due at once
	defer timer.Stop()
	armed := true
	arm := func(wait time.Duration) {
		timer.Reset(wait)
		armed = true
	}
	r.enqueue("", false)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.watch.wake:
			paths, lost := r.watch.takeChanged()
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
		case <-timer.C:
			armed = false
			isIncomplete, err := r.catchUp(ctx)
			if err != nil {
				return err
			}
			if isIncomplete {
				arm(r.settings.QuietDelay)
			}
		}
	}
}

// enqueue adds a path to the next look.
func (r *run) enqueue(path string, read bool) {
	if len(r.pending) == 0 {
		r.first = time.Now()
	}
	r.pending[path] = r.pending[path] || read
	if r.rootFailed {
		r.pending[""] = false
	}
}

// catchUp looks at the pending paths and publishes the changes in one commit. isIncomplete asks for another call after
// the quiet delay: a file has just disappeared, or was written to while it was read.
func (r *run) catchUp(ctx context.Context) (isIncomplete bool, err error) {
	if len(r.pending) == 0 {
		return false, nil
	}
	seen, err := takeSighting(ctx, r.disk, r.root, r.settings.FollowLinks, r.watch, r.pending)
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
	if r.rootFailed = err != nil; r.rootFailed {
		clear(r.pending)
		r.reportRoot(err)
		return false, nil
	}
	doubtful := r.removeBlank(seen)
	read, missing := compare(&r.files, r.pending, seen)
	read = append(read, doubtful...)
	deleted, young := r.missing.judge(missing, time.Now(), func(p string) time.Duration {
		if seen.fleeting(p) {
			return r.settings.EmptyGrace
		}
		return r.settings.QuietDelay
	})
	missed := slices.ContainsFunc(young, func(p string) bool { return !seen.fleeting(p) })
	patient := time.Since(r.first) < r.settings.MaxDelay
	if missed && patient && r.synced {
		return true, nil // both names of a renamed file change in one commit
	}

	results, err := r.load(ctx, read, seen)
	if err != nil {
		return false, err
	}
	before := maps.Clone(r.troubles)
	r.noteTroubles(seen)
	clear(r.pending)
	complete := !missed || !patient // removals come before Synced, for the guard
	var contents []sources.Content
	for _, loaded := range results {
		if loaded.changed && patient {
			r.enqueue(loaded.path, true)
			complete = false
			continue
		}
		if loaded.err == nil && !loaded.late {
			r.device = seen.device
		}
		contents = append(contents, r.noteLoaded(loaded, before[loaded.path])...)
	}
	contents = append(contents, r.removeFiles(deleted, results)...)
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

// noteTroubles replaces the troubles of the paths that are pending by those of a sighting.
func (r *run) noteTroubles(seen sighting) {
	maps.DeleteFunc(r.troubles, func(p string, _ trouble) bool {
		_, busy := r.busy[p]
		return !busy && isCovered(r.pending, p)
	})
	for p, err := range seen.blocked {
		r.troubles[p] = trouble{err: err, unread: true}
	}
	for p, err := range seen.refused {
		r.troubles[p] = trouble{err: err, unread: Reads(path.Base(p))} // a directory below a link in a circle is empty
	}
}

// removeFiles forgets deleted files, and returns their empty contents.
func (r *run) removeFiles(deleted []string, results []loaded) (contents []sources.Content) {
	for _, filePath := range deleted {
		if slices.ContainsFunc(results, func(f loaded) bool { return f.path == filePath && !errors.Is(f.err, errBlank) }) {
			continue // it was blank, and is being written
		}
		r.files.Delete(filePath)
		r.memory.set(filePath, nil)
		if r.derived != nil {
			r.derived.Remove(filePath)
		}
		contents = append(contents, sources.Content{Group: filePath})
	}
	return contents
}

// removeBlank counts blank files with the same stamp as empty. It returns the doubtful ones, which may have changed.
func (r *run) removeBlank(seen sighting) (doubtful []string) {
	for filePath, fileState := range r.blank {
		if !isCovered(r.pending, filePath) {
			continue
		}
		if now, exists := seen.files[filePath]; !exists || now != fileState.stamp {
			delete(r.blank, filePath)
			continue
		}
		delete(seen.files, filePath)
		seen.emptied[filePath] = true
		if fileState.doubtful {
			doubtful = append(doubtful, filePath)
		}
	}
	return doubtful
}

// load reads files. Slow ones continue in the background, and are not begun again before they are done.
func (r *run) load(ctx context.Context, paths []string, seen sighting) ([]loaded, error) {
	var files []loaded
	for _, filePath := range paths {
		if _, busy := r.busy[filePath]; busy {
			r.busy[filePath] = true
			continue
		}
		k, _ := r.files.Get(filePath)
		files = append(files, loaded{path: filePath, state: k, decoded: r.memory.files[filePath]})
	}
	r.loader.single = seen.single
	l := *r.loader // slow files keep their copy
	return r.pool.readAll(ctx, files, l.loadOne, func(f *loaded) time.Duration {
		return r.patience(seen.files[f.path].size, r.synced)
	})
}

// patience is the time that the other files of a change wait for a file of that size, many times the usual one: files
// that change together are published together. The first read can wait longer.
func patience(size int64, synced bool) time.Duration {
	const perSecond = 4 << 20
	if synced {
		return time.Second + time.Duration(size)*time.Second/perSecond
	}
	return 10 * (time.Second + time.Duration(size)*time.Second/perSecond)
}

// noteLoaded notes the result of reading a file, which had a trouble before, and returns the content to publish.
func (r *run) noteLoaded(file loaded, before trouble) []sources.Content {
	switch {
	case file.late:
		r.busy[file.path] = false
		name := r.loader.displayName(r.root, file.path)
		return r.noteTrouble(file, fmt.Errorf("%s takes long to read, and is still being read", name), before)
	case errors.Is(file.err, errBlank):
		r.blank[file.path] = file.state
		r.enqueue(file.path, false)
		return nil
	case errors.Is(file.err, fs.ErrNotExist), errors.Is(file.err, errEmptied): // it changed after the look
		r.enqueue(file.path, false)
		return nil
	case file.err != nil:
		return r.noteTrouble(file, file.err, before)
	}
	r.hasReadAny = true
	delete(r.blank, file.path)
	r.files.Set(file.path, file.state)
	if file.content == nil {
		return nil
	}
	r.memory.set(file.path, file.decoded)
	if r.derived != nil {
		r.derived.Replace(file.path, file.content)
	}
	return []sources.Content{*file.content}
}

// publish publishes contents, and the objects derived of all files, in one commit.
func (r *run) publish(contents []sources.Content) {
	if r.derived != nil {
		if derived, changed := r.derived.Content(r.unknownFile); changed {
			contents = append(contents, derived)
		}
	}
	if len(contents) > 0 {
		_ = r.sink.ReplaceAll(contents) // the sink reports its refusals
	}
}

// noteTrouble notes an unreadable file.
func (r *run) noteTrouble(file loaded, err error, before trouble) []sources.Content {
	r.troubles[file.path] = trouble{err: err, file: true}
	r.files.Set(file.path, fileState{stamp: file.state.stamp, doubtful: true})
	if before.err != nil && before.err.Error() == err.Error() {
		return nil
	}
	return []sources.Content{r.loader.rejected(file.path, err)}
}

// finish publishes slow files that are done. It reports whether paths are pending.
func (r *run) finish() bool {
	var contents []sources.Content
	for _, loaded := range r.pool.takeFinished() {
		_, exists := r.files.Get(loaded.path)
		stale := r.busy[loaded.path] || !exists || loaded.changed || loaded.err == nil && loaded.content == nil
		delete(r.busy, loaded.path)
		delete(r.troubles, loaded.path)
		if stale {
			r.enqueue(loaded.path, true)
			continue
		}
		contents = append(contents, r.noteLoaded(loaded, trouble{})...)
	}
	r.publish(contents)
	if !r.synced {
		r.enqueue("", false)
	}
	r.report()
	return len(r.pending) > 0
}

// reportRoot reports that the root cannot be read.
func (r *run) reportRoot(err error) {
	health := sources.Health{State: sources.Unreachable, Message: err.Error()}
	switch {
	case errors.Is(err, fs.ErrPermission):
		health.State = sources.Denied
	case errors.Is(err, fs.ErrNotExist):
		health.Message = r.root + " does not exist"
	}
	r.sink.Report(health)
}

// trouble is the reason why a path cannot be read.
type trouble struct {
	err error
	// unread says that files below the path are unknown: a directory that cannot be listed, or a link that may lead to
	// one. An unreadable file is quarantined by its name instead.
	unread bool
	file   bool
}

// unread returns, in order, the paths that were never read and that keep the source from being synced: directories
// without an earlier read, and all unreadable files if no file could be read.
func (r *run) unread() (paths []string) {
	if r.settings.PartialStart {
		return nil
	}
	for p, t := range r.troubles {
		if t.unread && !r.holds(p) || t.file && !r.hasReadAny {
			paths = append(paths, p)
		}
	}
	return inOrder(paths)
}

// unreadable returns the paths that were read once and are unreadable now, with the reason.
func (r *run) unreadable() map[string]string {
	reasons := make(map[string]string)
	for filePath := range r.missing {
		reasons[filePath] = fmt.Sprintf("%s is empty or missing, for a moment perhaps; "+
			"its last objects are served meanwhile, for emptyGrace at most",
			r.loader.displayName(r.root, filePath))
	}
	for p, t := range r.troubles {
		reasons[p] = t.err.Error()
	}
	return reasons
}

// report reports the health: healthy, or degraded with the reasons.
func (r *run) report() {
	if sink, ok := r.sink.(sources.Doubter); ok {
		sink.Unread(r.unreadable())
	}
	var lines []string
	if unread := r.unread(); !r.synced && len(unread) > 0 {
		lines = append(lines, fmt.Sprintf(
			"not synced, because not everything could be read yet (partialStart: true allows that): %d missing",
			len(unread)))
	}
	for _, filePath := range slices.Sorted(maps.Keys(r.troubles)) {
		trouble := r.troubles[filePath]
		name := filePath[strings.LastIndexByte(filePath, '/')+1:]
		if r.settings.PartialStart && errors.Is(trouble.err, errDangling) && !Reads(name) && !r.holds(filePath) {
			continue // a link to nowhere that would not have been read
		}
		lines = append(lines, trouble.err.Error())
	}
	if n, err := r.watch.blindness(); err != nil {
		lines = append(lines, fmt.Sprintf("changes in %s are noticed only every %s: %s",
			words.Count(n, "directory", "directories"), r.settings.RescanInterval, err))
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

// holds reports whether files at path or below it were read.
func (r *run) holds(path string) bool {
	if _, ok := r.files.Get(path); ok {
		return true
	}
	exists := false
	r.files.Ascend(path+"/", func(p string, _ fileState) bool {
		exists = isWithin(p, path)
		return false
	})
	return exists
}
