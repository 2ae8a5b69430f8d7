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

// watcher reports the paths to look at again. It watches real directories and translates their events into paths within
// the root: one directory may be several paths, if links lead to it, and the anchors of a path may be far outside.
//
// Without events (unavailable, or too many directories) it is silent, and the source relies on its rescans.
type watcher struct {
	disk   disk
	events *fsnotify.Watcher // nil if there are none
	wake   chan struct{}     // has a value when takeChanged has paths

	// Owned by the loop of the source.
	dirs    map[string]string   // path of a directory within the root to its real path
	anchors map[string][]anchor // path of a link within the root, or the root, to its anchors
	ids     map[string]inode    // real directory to its inode when its watch began
	names   map[inode]string    // the reverse: events have one name of a directory
	blind   map[string]error    // real directories without a watch, with the reason
	added   map[string]bool     // real directories that were watched again since beginLook

	mu         sync.Mutex
	targets    map[string]*target // by real directory
	dirty      map[string]struct{}
	eventsLost bool // a full look is needed
}

// target has the reasons to watch a real directory.
type target struct {
	directories []string            // it is these directories within the root: all names in it matter
	names       map[string][]string // names in it that are anchors, with the paths within the root
}

// maxDirty is the limit of changed paths; more cause a full look.
const maxDirty = 1 << 16

// newWatcher starts a watcher and its worker, which close ends. A blind one has no events.
func newWatcher(d disk, blind bool, workers *worker.Group) *watcher {
	watcher := &watcher{
		disk: d,
		wake: make(chan struct{}, 1),
		dirs: make(map[string]string), anchors: make(map[string][]anchor),
		ids: make(map[string]inode), names: make(map[inode]string), blind: make(map[string]error),
		added:   make(map[string]bool),
		targets: make(map[string]*target), dirty: make(map[string]struct{}),
	}
	if blind {
		return watcher
	}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		watcher.blind[""] = err
		return watcher
	}
	watcher.events = events
	workers.Go(watcher.readEvents)
	return watcher
}

func (w *watcher) close() {
	if w.events != nil {
		_ = w.events.Close() // readEvents ends in any case
	}
}

// readEvents never waits for the loop, so that the kernel's queue is emptied while the loop reads files.
func (w *watcher) readEvents() {
	events, errs := w.events.Events, w.events.Errors
	for events != nil || errs != nil {
		select {
		case event, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			w.noteEvent(event)
		case _, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			w.noteLost() // an overflow, most likely
		}
	}
}

// noteEvent notes the paths of an event.
func (w *watcher) noteEvent(event fsnotify.Event) {
	dir, name := filepath.Split(event.Name)
	dir = filepath.Clean(dir)
	var paths []string
	w.mu.Lock()
	if t := w.targets[event.Name]; t != nil { // the directory itself was moved, removed, or given other permissions
		paths = append(paths, t.directories...)
	}
	if target := w.targets[dir]; target != nil {
		paths = append(paths, target.names[name]...)
		// A directory is never written to. Other files, such as logs, would cause needless looks.
		if !Hidden(name) && (Reads(name) || event.Op != fsnotify.Write) {
			for _, under := range target.directories {
				paths = append(paths, join(under, name))
			}
		}
	}
	for _, p := range paths {
		w.dirty[p] = struct{}{}
	}
	if len(w.dirty) > maxDirty {
		w.eventsLost = true
		clear(w.dirty)
	}
	w.mu.Unlock()
	if len(paths) > 0 {
		wakeUp(w.wake)
	}
}

func (w *watcher) noteLost() {
	w.mu.Lock()
	w.eventsLost = true
	w.mu.Unlock()
	wakeUp(w.wake)
}

// takeChanged returns, once, the changed paths, and whether events were lost.
func (w *watcher) takeChanged() (paths map[string]struct{}, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	paths, lost = w.dirty, w.eventsLost
	w.dirty, w.eventsLost = make(map[string]struct{}), false
	return paths, lost
}

// beginLook begins a look: it watches all directories again, since the kernel forgets a removed directory even if
// another one takes its place.
func (w *watcher) beginLook() { clear(w.added) }

// enter watches the directory of a path within the root. It must be called before the directory is listed, so that
// later changes are noticed.
func (w *watcher) enter(path, real string, id stamp) {
	if old, ok := w.dirs[path]; ok && old != real {
		w.leave(path)
	}
	if _, ok := w.dirs[path]; !ok {
		w.dirs[path] = real
		w.updateTarget(real, func(t *target) { t.directories = append(t.directories, path) })
	}
	w.add(real, &id)
}

// leave ends the watch of a directory for a path.
func (w *watcher) leave(path string) {
	real, ok := w.dirs[path]
	if !ok {
		return
	}
	delete(w.dirs, path)
	w.updateTarget(real, func(t *target) { t.directories = removeItem(t.directories, path) })
	w.release(real)
}

// watchAnchors replaces the anchors of a path. It reports whether they differ from the earlier ones: their changes
// until now went unnoticed.
func (w *watcher) watchAnchors(path string, anchors []anchor) (news bool) {
	old := w.anchors[path]
	for _, anchor := range anchors {
		if !slices.Contains(old, anchor) {
			w.updateTarget(anchor.dir, func(t *target) { t.names[anchor.name] = append(t.names[anchor.name], path) })
		}
		w.add(anchor.dir, nil)
	}
	if slices.Equal(old, anchors) {
		return false
	}
	for _, anchor := range old {
		if slices.Contains(anchors, anchor) {
			continue
		}
		w.updateTarget(anchor.dir, func(t *target) {
			if t.names[anchor.name] = removeItem(t.names[anchor.name], path); len(t.names[anchor.name]) == 0 {
				delete(t.names, anchor.name)
			}
		})
		w.release(anchor.dir)
	}
	if len(anchors) == 0 {
		delete(w.anchors, path)
	} else {
		w.anchors[path] = slices.Clone(anchors)
	}
	return true
}

// forget ends the watches for paths and all below them, except for existing directories and links.
func (w *watcher) forget(paths map[string]bool, dirs map[string]*dir, links map[string]bool) {
	watched := w.directories(paths)
	for p := range paths {
		if !watched[p] && !links[p] {
			w.watchAnchors(p, nil)
		}
	}
	if len(watched) == 0 {
		return
	}
	for p := range w.dirs {
		if isCovered(watched, p) && dirs[p] == nil {
			w.leave(p)
		}
	}
	for p := range w.anchors {
		if isCovered(watched, p) && !links[p] {
			w.watchAnchors(p, nil)
		}
	}
}

// directories returns the watched directories of paths and below them, in one pass.
func (w *watcher) directories(paths map[string]bool) map[string]bool {
	dirs := make(map[string]bool)
	for p := range paths {
		if _, ok := w.dirs[p]; ok {
			dirs[p] = true
		}
	}
	return dirs
}

// prune drops the watches of directories at paths and below that are not there any more, or are others now; for the
// root, those of all directories. A directory that was renamed is still watched, under its old name; were it not
// dropped, then adding its new name would only refresh that watch.
func (w *watcher) prune(paths map[string]bool) {
	if _, entire := paths[""]; entire {
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
		if isCovered(dirs, p) {
			w.check(real)
		}
	}
}

// check drops the watch of a real directory that was removed or replaced.
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
		_ = w.events.Remove(real) // the kernel has mostly ended it
	}
}

// updateTarget changes the reasons to watch a real directory.
func (w *watcher) updateTarget(real string, change func(*target)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watched := w.targets[real]
	if watched == nil {
		watched = &target{names: make(map[string][]string)}
		w.targets[real] = watched
	}
	change(watched)
	if len(watched.directories)+len(watched.names) == 0 {
		delete(w.targets, real)
	}
}

// add begins the watch of a real directory with an inode, or with its current one if id is nil.
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

// identify notes the inode of a real directory. The kernel knows a directory by its inode, and its events have the name
// of the first watch. After a rename, that watch would end with the old name.
func (w *watcher) identify(real string, id inode) error {
	if former, ok := w.ids[real]; ok && former != id {
		w.drop(real)
	}
	if former, ok := w.names[id]; ok && former != real && id != (inode{}) {
		if fi, err := w.disk.Lstat(former); err == nil && stampOf(fi).inode == id {
			return fmt.Errorf("%s and %s are one directory, mounted twice", former, real)
		}
		w.drop(former)
	}
	w.ids[real], w.names[id] = id, real
	return nil
}

// release ends the watch of a real directory without a target.
func (w *watcher) release(real string) {
	w.mu.Lock()
	_, wanted := w.targets[real]
	w.mu.Unlock()
	if wanted {
		return
	}
	w.drop(real)
}

// blindness returns the number of directories within the root without events, and the reason.
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

func removeItem(list []string, x string) []string {
	return slices.DeleteFunc(list, func(y string) bool { return x == y })
}
