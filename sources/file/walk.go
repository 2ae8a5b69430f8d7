package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
)

// walker takes one look at some paths below a root, and watches the directories on its way.
type walker struct {
	ctx        context.Context
	disk       disk
	root       string // absolute
	followsOut bool   // links may lead out of the root
	watch      *watcher

	seen  sighting
	dirs  map[string]*dir // by path; nil for other paths
	links map[string]bool // paths of links, and the root
}

// dir is a directory on the way.
type dir struct {
	path   string // within the root
	real   string
	parent *dir
	links  int // symbolic links to directories gone through from the root
}

var errDangling = errors.New("is a link that leads nowhere")

// maxLinked is the limit of links to directories in a path. Ten directories with links to each other have thousands of
// such paths.
const maxLinked = 3

// takeSighting looks at paths and all below them. An error says that the root is missing or unreadable, or that ctx
// ended; then there is no sighting. followsOut follows links that lead out of the root.
func takeSighting(
	ctx context.Context, disk disk, root string, followsOut bool, watch *watcher, paths map[string]bool,
) (sighting, error) {
	walker := &walker{
		ctx: ctx, disk: disk, root: root, followsOut: followsOut, watch: watch,
		seen: sighting{
			files: make(map[string]stamp), blocked: make(map[string]error),
			refused: make(map[string]error), emptied: make(map[string]bool),
		},
		dirs: make(map[string]*dir), links: map[string]bool{"": true},
	}
	watch.beginLook()
	watch.prune(paths)
	real, info, err := walker.enterRoot()
	if err != nil {
		return sighting{}, err
	}
	walker.seen.device = stampOf(info).inode.dev
	if info.Mode().IsRegular() {
		walker.seen.single = true
		walker.file(filepath.Base(root), info)
		watch.forget(map[string]bool{"": true}, walker.dirs, walker.links)
		return walker.seen, nil
	}
	walker.dirs[""] = &dir{real: real}
	for path := range paths {
		switch {
		case path == "":
			walker.walk(walker.dirs[""], info)
		case !isCovered(paths, parentOf(path)):
			if parent := walker.dir(parentOf(path)); parent != nil {
				walker.visit(parent, filepath.Base(path))
			}
		}
	}
	watch.forget(paths, walker.dirs, walker.links)
	return walker.seen, cmp.Or(ctx.Err(), walker.seen.blocked[""])
}

// enterRoot finds the root, and watches it, even if it does not exist.
func (w *walker) enterRoot() (string, fs.FileInfo, error) {
	real, err := w.follow("", w.root)
	if err != nil {
		return "", nil, err
	}
	info, err := w.disk.Lstat(real)
	if err != nil {
		return "", nil, err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return "", nil, fmt.Errorf("%s is neither a directory nor a file", w.root)
	}
	return real, info, nil
}

// follow resolves name, the name of path in the file system, and watches its anchors.
func (w *walker) follow(path, name string) (real string, err error) {
	var root string
	if path != "" {
		root = w.dirs[""].real
	}
	for range maxFollowed {
		var anchors []anchor
		real, anchors, err = resolve(w.disk, name)
		if path != "" { // a change above the root causes a full look anyway
			anchors = slices.DeleteFunc(anchors, func(a anchor) bool { return containsPath(underDir(a.dir, a.name), root) })
		}
		if !w.watch.watchAnchors(path, anchors) {
			break
		}
	}
	return real, err
}

// maxFollowed is the limit of attempts to follow a path that changes meanwhile. Its anchors are watched then.
const maxFollowed = 5

// dir finds the directory at path without listing those on the way. It returns nil without one.
func (w *walker) dir(path string) *dir {
	if d, ok := w.dirs[path]; ok {
		return d
	}
	w.dirs[path] = nil
	parent := w.dir(parentOf(path))
	name := filepath.Base(path)
	if parent == nil || Hidden(name) {
		return nil
	}
	fi, real, linked := w.stat(parent, name)
	if fi != nil && fi.IsDir() {
		w.dirs[path] = w.descend(parent, name, real, linked)
	}
	return w.dirs[path]
}

// stat returns the file or directory of a name in a directory, through links; nil without one, or if it is unreadable.
func (w *walker) stat(parent *dir, name string) (info fs.FileInfo, real string, linked bool) {
	path := join(parent.path, name)
	real = underDir(parent.real, name)
	info, err := w.disk.Lstat(real)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		linked, w.links[path] = true, true
		link := real
		real, err = w.follow(path, link)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// The link exists, so this is no deletion: its target may be back in a moment.
			err = fmt.Errorf("%s %w", link, errDangling)
		case err == nil:
			if info, err = w.disk.Lstat(real); err == nil && !w.followsOut && w.leadsOut(real) && reads(info, name) {
				err = leadsOut(link, real)
			}
		}
	} else {
		w.watch.watchAnchors(path, nil) // it may have been a link
	}
	switch {
	case errors.Is(err, syscall.ELOOP):
		w.seen.refused[path] = err
		return nil, "", linked
	case err != nil:
		if linked || !errors.Is(err, fs.ErrNotExist) {
			w.seen.blocked[path] = err
		}
		return nil, "", linked
	}
	return info, real, linked
}

// leadsOut reports whether the target of a link is out of the root. A link to a directory above the root leads in a
// circle.
func (w *walker) leadsOut(real string) bool {
	root := w.dirs[""].real
	return !containsPath(root, real) && !containsPath(real, root)
}

// reads reports whether a file is read, or a directory listed.
func reads(fi fs.FileInfo, name string) bool {
	return fi.IsDir() || fi.Mode().IsRegular() && Reads(name)
}

// descend returns the directory of a name in its parent, or nil for a link in a circle.
func (w *walker) descend(parent *dir, name, real string, linked bool) *dir {
	dir := &dir{path: join(parent.path, name), real: real, parent: parent, links: parent.links}
	if !linked {
		return dir
	}
	for a := parent; a != nil; a = a.parent {
		if containsPath(real, a.real) {
			link := underDir(parent.real, name)
			w.seen.refused[dir.path] = fmt.Errorf("%s is a link to a directory above it, and is not followed", link)
			return nil
		}
	}
	if dir.links++; dir.links > maxLinked {
		w.seen.refused[dir.path] = fmt.Errorf("%s is not followed: there are %d links to directories on the way to it",
			underDir(parent.real, name), maxLinked)
		return nil
	}
	return dir
}

// visit looks at a name in a directory and all below it.
func (w *walker) visit(parent *dir, name string) {
	if Hidden(name) {
		return
	}
	info, real, linked := w.stat(parent, name)
	switch {
	case info == nil:
	case info.IsDir():
		dir := w.descend(parent, name, real, linked)
		w.dirs[join(parent.path, name)] = dir
		if dir != nil {
			w.walk(dir, info)
		}
	case info.Mode().IsRegular() && Reads(name):
		w.file(join(parent.path, name), info)
	}
}

// file notes a file that is read.
func (w *walker) file(path string, fi fs.FileInfo) {
	if fi.Size() > 0 {
		w.seen.files[path] = stampOf(fi)
	} else {
		w.seen.emptied[path] = true
	}
}

// walk looks at all names in dir.
func (w *walker) walk(dir *dir, fi fs.FileInfo) {
	w.watch.enter(dir.path, dir.real, stampOf(fi))
	root := w.dirs[""].real
	if w.followsOut {
		root = ""
	}
	entries, err := w.disk.ReadDir(root, dir.real)
	if err != nil {
		if dir.path == "" || !errors.Is(err, fs.ErrNotExist) {
			w.seen.blocked[dir.path] = err
		}
		return
	}
	for _, dirEntry := range entries {
		if w.ctx.Err() != nil {
			return
		}
		if dirEntry.Type().IsRegular() && !Reads(dirEntry.Name()) {
			continue
		}
		w.visit(dir, dirEntry.Name())
	}
}
