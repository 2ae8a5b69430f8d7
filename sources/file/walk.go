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

// walker takes one look at some paths below a root. It has the directories that it goes through watched.
type walker struct {
	ctx   context.Context
	disk  disk
	root  string // absolute
	out   bool   // links may lead out of the root
	watch *watcher

	seen  sighting
	dirs  map[string]*dir // by path; nil for what is no directory
	links map[string]bool // paths that are links, wherever they lead
}

// dir is a directory on the way to what is looked at.
type dir struct {
	path  string // within the root
	real  string
	up    *dir
	links int // symbolic links to directories gone through from the root
}

var errDangling = errors.New("is a link that leads nowhere")

// maxLinked is how many links to directories a path within the root may go through. Directories full of links to each
// other have as many paths as there are ways to go through that many of them: thousands for ten directories.
const maxLinked = 3

// look takes a look at paths and everything below them. An error says that the root is missing or cannot be read, or that
// ctx ended, and then nothing is known. Links that lead out of the root are followed if out says so.
func look(ctx context.Context, d disk, root string, out bool, watch *watcher, paths map[string]bool) (sighting, error) {
	w := &walker{
		ctx: ctx, disk: d, root: root, out: out, watch: watch,
		seen: sighting{
			files: make(map[string]stamp), blocked: make(map[string]error),
			refused: make(map[string]error), emptied: make(map[string]bool),
		},
		dirs: make(map[string]*dir), links: make(map[string]bool),
	}
	watch.renew()
	watch.prune(paths)
	real, fi, err := w.enterRoot()
	if err != nil {
		return sighting{}, err
	}
	w.seen.device = stampOf(fi).inode.dev
	if fi.Mode().IsRegular() {
		w.seen.single = true
		w.file(filepath.Base(root), fi)
		watch.forget(map[string]bool{"": true}, w.isDir, w.isLink)
		return w.seen, nil
	}
	w.dirs[""] = &dir{real: real}
	for p := range paths {
		switch {
		case p == "":
			w.walk(w.dirs[""], fi)
		case !covered(paths, parent(p)):
			if up := w.dir(parent(p)); up != nil {
				w.visit(up, filepath.Base(p))
			}
		}
	}
	watch.forget(paths, w.isDir, w.isLink)
	return w.seen, cmp.Or(ctx.Err(), w.seen.blocked[""])
}

// isDir reports whether there is a directory at path, which was looked at.
func (w *walker) isDir(path string) bool { return w.dirs[path] != nil }

// isLink reports whether there is a link at path, which was looked at, or whether that is the root.
func (w *walker) isLink(path string) bool { return path == "" || w.links[path] }

// enterRoot finds the root, and has it watched for, be it there or not.
func (w *walker) enterRoot() (string, fs.FileInfo, error) {
	real, err := w.follow("", w.root)
	if err != nil {
		return "", nil, err
	}
	fi, err := w.disk.Lstat(real)
	if err != nil {
		return "", nil, err
	}
	if !fi.IsDir() && !fi.Mode().IsRegular() {
		return "", nil, fmt.Errorf("%s is neither a directory nor a file", w.root)
	}
	return real, fi, nil
}

// follow resolves name, which is what path is called in the file system, and has watched what it hangs on.
func (w *walker) follow(path, name string) (real string, err error) {
	var above string
	if path != "" {
		above = w.dirs[""].real
	}
	for range maxFollowed {
		var anchors []anchor
		real, anchors, err = resolve(w.disk, name)
		if path != "" { // when something happens above the root, everything is looked at anyway
			anchors = slices.DeleteFunc(anchors, func(a anchor) bool { return contains(under(a.dir, a.name), above) })
		}
		if !w.watch.hang(path, anchors) {
			break
		}
	}
	return real, err
}

// maxFollowed is how often one path is followed because it leads elsewhere each time. What it hangs on is watched by then.
const maxFollowed = 5

// dir finds the directory at path, without looking around on the way. It returns nil if there is none.
func (w *walker) dir(path string) *dir {
	if d, ok := w.dirs[path]; ok {
		return d
	}
	w.dirs[path] = nil
	up := w.dir(parent(path))
	name := filepath.Base(path)
	if up == nil || Hidden(name) {
		return nil
	}
	fi, real, linked := w.stat(up, name)
	if fi != nil && fi.IsDir() {
		w.dirs[path] = w.descend(up, name, real, linked)
	}
	return w.dirs[path]
}

// stat finds what name in directory up is, through links. It returns nil if that is nothing, or blocked.
func (w *walker) stat(up *dir, name string) (fi fs.FileInfo, real string, linked bool) {
	path := join(up.path, name)
	real = under(up.real, name)
	fi, err := w.disk.Lstat(real)
	if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		linked, w.links[path] = true, true
		link := real
		real, err = w.follow(path, link)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// The link is there, so this is no deletion: whatever it leads to may be back in a moment.
			err = fmt.Errorf("%s %w", link, errDangling)
		case err == nil:
			if fi, err = w.disk.Lstat(real); err == nil && !w.out && w.leadsOut(real) && reads(fi, name) {
				err = leadsOut(link, real)
			}
		}
	} else {
		w.watch.hang(path, nil) // it may have been a link before
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
	return fi, real, linked
}

// leadsOut reports whether what a link leads to is out of the root. One to a directory that the root is in leads in a circle.
func (w *walker) leadsOut(real string) bool {
	root := w.dirs[""].real
	return !contains(root, real) && !contains(real, root)
}

// reads reports whether something of that name is read, or looked into.
func reads(fi fs.FileInfo, name string) bool {
	return fi.IsDir() || fi.Mode().IsRegular() && Reads(name)
}

// descend returns directory name in up, or nil if it leads in a circle.
func (w *walker) descend(up *dir, name, real string, linked bool) *dir {
	d := &dir{path: join(up.path, name), real: real, up: up, links: up.links}
	if !linked {
		return d
	}
	for a := up; a != nil; a = a.up {
		if contains(real, a.real) {
			w.seen.refused[d.path] = fmt.Errorf("%s is a link to a directory that it is in, and is not followed", under(up.real, name))
			return nil
		}
	}
	if d.links++; d.links > maxLinked {
		w.seen.refused[d.path] = fmt.Errorf("%s is not followed: there are %d links to directories on the way to it", under(up.real, name),
			maxLinked)
		return nil
	}
	return d
}

// visit looks at name in directory up, and everything below.
func (w *walker) visit(up *dir, name string) {
	if Hidden(name) {
		return
	}
	fi, real, linked := w.stat(up, name)
	switch {
	case fi == nil:
	case fi.IsDir():
		d := w.descend(up, name, real, linked)
		w.dirs[join(up.path, name)] = d
		if d != nil {
			w.walk(d, fi)
		}
	case fi.Mode().IsRegular() && Reads(name):
		w.file(join(up.path, name), fi)
	}
}

// file notes a file that counts.
func (w *walker) file(path string, fi fs.FileInfo) {
	if fi.Size() > 0 {
		w.seen.files[path] = stampOf(fi)
	} else {
		w.seen.emptied[path] = true
	}
}

// walk looks at everything in d.
func (w *walker) walk(d *dir, fi fs.FileInfo) {
	w.watch.enter(d.path, d.real, stampOf(fi))
	within := w.dirs[""].real
	if w.out {
		within = ""
	}
	entries, err := w.disk.ReadDir(within, d.real)
	if err != nil {
		if d.path == "" || !errors.Is(err, fs.ErrNotExist) {
			w.seen.blocked[d.path] = err
		}
		return
	}
	for _, e := range entries {
		if w.ctx.Err() != nil {
			return
		}
		if e.Type().IsRegular() && !Reads(e.Name()) {
			continue
		}
		w.visit(d, e.Name())
	}
}
