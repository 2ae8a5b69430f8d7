package file

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"

	"tributary/internal/worker"
)

// watcher tells which paths to look at again. It watches real directories and translates what happens there into paths
// within the root: one directory may be several of them, if links lead to it, and a path may hang on names far outside.
//
// Without events (none could be had, or too many directories) it stays silent, and the source lives by its rescans.
type watcher struct {
	disk   disk
	events *fsnotify.Watcher // nil if there are none
	wake   chan struct{}     // has a value when take has something to give

	// Owned by the loop of the source.
	dirs    map[string]string   // path of each directory within the root: where it really is
	anchors map[string][]anchor // path of each link within the root, and the root: what it hangs on
	ids     map[string]inode    // real directory: which one it was when its events were asked for
	names   map[inode]string    // the reverse: a directory has its events under one name
	blind   map[string]error    // real directories that could not be watched, and why
	added   map[string]bool     // real directories whose events were asked for since renew

	mu      sync.Mutex
	targets map[string]*target // by real directory
	dirty   map[string]struct{}
	lost    bool // events were; look at everything
}

// target is what a real directory is watched for.
type target struct {
	under []string            // it is these directories within the root: every name in it matters
	names map[string][]string // these paths within the root hang on a name in it
}

// maxDirty is how many paths wait to be looked at before it is simpler to look at everything.
const maxDirty = 1 << 16

// newWatcher starts a watcher, of which the worker ends with close. A blind one has no events.
func newWatcher(d disk, blind bool, workers *worker.Group) *watcher {
	w := &watcher{
		disk: d,
		wake: make(chan struct{}, 1),
		dirs: make(map[string]string), anchors: make(map[string][]anchor),
		ids: make(map[string]inode), names: make(map[inode]string), blind: make(map[string]error),
		added:   make(map[string]bool),
		targets: make(map[string]*target), dirty: make(map[string]struct{}),
	}
	if blind {
		return w
	}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		w.blind[""] = err
		return w
	}
	w.events = events
	workers.Go(w.pump)
	return w
}

func (w *watcher) close() {
	if w.events != nil {
		_ = w.events.Close() // nothing to be done about it; pump ends either way
	}
}

// pump never waits for the loop, so that the kernel's queue is emptied while the loop is busy reading.
func (w *watcher) pump() {
	events, errs := w.events.Events, w.events.Errors
	for events != nil || errs != nil {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			w.happened(e)
		case _, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			w.lose() // an overflow, most likely
		}
	}
}

// happened notes the paths that an event is about.
func (w *watcher) happened(e fsnotify.Event) {
	dir, name := filepath.Split(e.Name)
	dir = filepath.Clean(dir)
	var paths []string
	w.mu.Lock()
	if t := w.targets[e.Name]; t != nil { // the directory itself was moved, removed, or given other permissions
		paths = append(paths, t.under...)
	}
	if t := w.targets[dir]; t != nil {
		paths = append(paths, t.names[name]...)
		// A directory is never written to. Files that do not count and are, such as logs, would keep us busy.
		if !Hidden(name) && (Reads(name) || e.Op != fsnotify.Write) {
			for _, under := range t.under {
				paths = append(paths, join(under, name))
			}
		}
	}
	for _, p := range paths {
		w.dirty[p] = struct{}{}
	}
	if len(w.dirty) > maxDirty {
		w.lost = true
		clear(w.dirty)
	}
	w.mu.Unlock()
	if len(paths) > 0 {
		wakeUp(w.wake)
	}
}

func (w *watcher) lose() {
	w.mu.Lock()
	w.lost = true
	w.mu.Unlock()
	wakeUp(w.wake)
}

// changed returns, once, the paths that something happened to, and whether events were lost.
func (w *watcher) changed() (paths map[string]struct{}, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	paths, lost = w.dirty, w.lost
	w.dirty, w.lost = make(map[string]struct{}), false
	return paths, lost
}

// renew begins a look: what is entered or hung on from here is asked for anew, since the kernel forgets a directory that
// is removed even if another takes its place.
func (w *watcher) renew() { clear(w.added) }

// enter watches a directory: path within the root, and where it really is. It must be called before each reading of the
// directory, so that what happens afterwards is noticed.
func (w *watcher) enter(path, real string, id stamp) {
	if old, ok := w.dirs[path]; ok && old != real {
		w.leave(path)
	}
	if _, ok := w.dirs[path]; !ok {
		w.dirs[path] = real
		w.aim(real, func(t *target) { t.under = append(t.under, path) })
	}
	w.add(real, &id)
}

// leave stops watching a directory for path.
func (w *watcher) leave(path string) {
	real, ok := w.dirs[path]
	if !ok {
		return
	}
	delete(w.dirs, path)
	w.aim(real, func(t *target) { t.under = without(t.under, path) })
	w.release(real)
}

// hang watches the names that path hangs on; without any it stops. It reports whether they are others than before: what
// happened to them until now went unnoticed.
func (w *watcher) hang(path string, anchors []anchor) (news bool) {
	old := w.anchors[path]
	for _, a := range anchors {
		if !slices.Contains(old, a) {
			w.aim(a.dir, func(t *target) { t.names[a.name] = append(t.names[a.name], path) })
		}
		w.add(a.dir, nil)
	}
	if slices.Equal(old, anchors) {
		return false
	}
	for _, a := range old {
		if slices.Contains(anchors, a) {
			continue
		}
		w.aim(a.dir, func(t *target) {
			if t.names[a.name] = without(t.names[a.name], path); len(t.names[a.name]) == 0 {
				delete(t.names, a.name)
			}
		})
		w.release(a.dir)
	}
	if len(anchors) == 0 {
		delete(w.anchors, path)
	} else {
		w.anchors[path] = slices.Clone(anchors)
	}
	return true
}

// forget stops watching for paths and everything below them, but for the directories and the links that are still there.
func (w *watcher) forget(paths map[string]bool, isDir, isLink func(path string) bool) {
	dirs := w.directories(paths)
	for p := range paths {
		if !dirs[p] && !isLink(p) {
			w.hang(p, nil)
		}
	}
	if len(dirs) == 0 {
		return
	}
	for p := range w.dirs {
		if covered(dirs, p) && !isDir(p) {
			w.leave(p)
		}
	}
	for p := range w.anchors {
		if covered(dirs, p) && !isLink(p) {
			w.hang(p, nil)
		}
	}
}

// directories returns those of paths that are watched as directories. What is below them is found in one pass, however many they are.
func (w *watcher) directories(paths map[string]bool) map[string]bool {
	dirs := make(map[string]bool)
	for p := range paths {
		if _, ok := w.dirs[p]; ok {
			dirs[p] = true
		}
	}
	return dirs
}

// prune drops the watches of directories at paths and below that are not there any more, or are others now; for the root,
// those of all directories. A directory that was renamed is still watched, under its old name; were it not dropped, then
// adding its new name would only refresh that watch.
func (w *watcher) prune(paths map[string]bool) {
	if _, all := paths[""]; all {
		for real := range w.ids {
			w.check(real)
		}
		return
	}
	dirs := w.directories(paths)
	if len(dirs) == 0 {
		return
	}
	for p, real := range w.dirs {
		if covered(dirs, p) {
			w.check(real)
		}
	}
}

// check drops the watch of a real directory if that is not there any more, or is another now.
func (w *watcher) check(real string) {
	if fi, err := w.disk.Lstat(real); err != nil || stampOf(fi).inode != w.ids[real] {
		w.drop(real)
	}
}

// drop ends the watch of a real directory.
func (w *watcher) drop(real string) {
	if id := w.ids[real]; w.names[id] == real {
		delete(w.names, id)
	}
	delete(w.ids, real)
	delete(w.blind, real)
	delete(w.added, real)
	if w.events != nil {
		_ = w.events.Remove(real) // mostly gone by itself
	}
}

// aim changes what a real directory is watched for.
func (w *watcher) aim(real string, change func(*target)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.targets[real]
	if t == nil {
		t = &target{names: make(map[string][]string)}
		w.targets[real] = t
	}
	change(t)
	if len(t.under)+len(t.names) == 0 {
		delete(w.targets, real)
	}
}

// add asks for the events of a real directory, which is the one that id says, or, if that is nil, the one that is there.
func (w *watcher) add(real string, id *stamp) {
	if w.events == nil || w.added[real] {
		return
	}
	if id == nil {
		if fi, err := w.disk.Lstat(real); err == nil {
			now := stampOf(fi)
			id = &now
		}
	}
	var err error
	if id != nil {
		err = w.identify(real, id.inode)
	}
	if err == nil {
		err = w.events.Add(real)
	}
	w.added[real] = true
	if err != nil {
		w.blind[real] = err
	} else {
		delete(w.blind, real)
	}
}

// identify notes which directory a real one is. The kernel knows a directory by its inode, and tells what happens in it under the name
// that it was first watched by. If it was renamed since then, that watch would end with its old name.
func (w *watcher) identify(real string, id inode) error {
	if was, ok := w.ids[real]; ok && was != id {
		w.drop(real)
	}
	if other, ok := w.names[id]; ok && other != real && id != (inode{}) {
		if fi, err := w.disk.Lstat(other); err == nil && stampOf(fi).inode == id {
			return fmt.Errorf("%s and %s are one directory, mounted twice", other, real)
		}
		w.drop(other)
	}
	w.ids[real], w.names[id] = id, real
	return nil
}

// release ends the watch of a real directory that nothing is watched for.
func (w *watcher) release(real string) {
	w.mu.Lock()
	_, wanted := w.targets[real]
	w.mu.Unlock()
	if wanted {
		return
	}
	w.drop(real)
}

// blindness says why events are missing for directories within the root, and for how many; nil if there is none.
func (w *watcher) blindness() (dirs int, err error) {
	if err := w.blind[""]; err != nil {
		return len(w.dirs), err
	}
	for _, real := range w.dirs {
		if e := w.blind[real]; e != nil && !errors.Is(e, fs.ErrNotExist) {
			dirs, err = dirs+1, e
		}
	}
	return dirs, err
}

func without(list []string, x string) []string {
	return slices.DeleteFunc(list, func(y string) bool { return x == y })
}
