package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// oracle reads a tree independently, by the README alone, in the simplest way and without code of the source. It knows
// the files of the torture only.
type oracle struct {
	files   map[string]string // text of each file that counts, by path
	unsound []string          // paths at and below which something cannot be read, or not in full, in order
}

// served is a served object: its host, and its file.
type served struct {
	Host, Group string
}

const brokenMark = "BROKEN"

func ask(root string) *oracle {
	o := &oracle{files: make(map[string]string)}
	o.dir(root, "", nil, 0)
	slices.Sort(o.unsound)
	return o
}

// dir reads the directory at a real path. above are the real paths of the directories gone through.
func (o *oracle) dir(real, path string, above []string, links int) {
	if fi, err := os.Lstat(real); err != nil || fi.Mode().Perm() == 0 {
		o.unsound = append(o.unsound, path)
		return
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		o.unsound = append(o.unsound, path)
		return
	}
	above = append(slices.Clip(above), real)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			o.entry(filepath.Join(real, e.Name()), strings.TrimPrefix(path+"/"+e.Name(), "/"), above, links, e)
		}
	}
}

func (o *oracle) entry(location, path string, above []string, links int, e fs.DirEntry) {
	real := location
	if e.Type()&fs.ModeSymlink != 0 {
		info, err := os.Stat(location)
		switch {
		case errors.Is(err, syscall.ELOOP):
			return
		case err != nil:
			o.unsound = append(o.unsound, path)
			return
		}
		real, _ = filepath.EvalSymlinks(location)
		if info.IsDir() {
			links++
			for _, a := range above {
				if a == real || strings.HasPrefix(a, real+"/") {
					return
				}
			}
			if links > 8 {
				return
			}
		}
	}
	info, err := os.Lstat(real)
	switch {
	case err != nil:
	case info.IsDir():
		o.dir(real, path, above, links)
	case strings.HasSuffix(path, ".yaml") && info.Size() > 0:
		if info.Mode().Perm() == 0 {
			o.unsound = append(o.unsound, path)
			return
		}
		text, _ := os.ReadFile(real)
		o.files[path] = string(text)
		if strings.Contains(string(text), brokenMark) {
			o.unsound = append(o.unsound, path)
		}
	}
}

// counts says whether a first start on the tree counts as read, where that is known: it does if everything can be read,
// and does not if something cannot, and no object stands anywhere.
func (o *oracle) counts() (read, certain bool) {
	if len(o.unsound) == 0 {
		return true, true
	}
	for _, text := range o.files {
		if document.MatchString(text) {
			return false, false // perhaps
		}
	}
	return false, true
}

var document = regexp.MustCompile(`(?m)^  name: (\S+)\nspec:\n  hosts: \[(\S+)\]`)

// winners are the objects that files without faults have: of each name the first, in order of path.
func (o *oracle) winners() map[string]served {
	objects := make(map[string]served)
	paths := make([]string, 0, len(o.files))
	for p := range o.files {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		if strings.Contains(o.files[p], brokenMark) {
			continue
		}
		for _, m := range document.FindAllStringSubmatch(o.files[p], -1) {
			if _, taken := objects[m[1]]; !taken {
				objects[m[1]] = served{m[2], p}
			}
		}
	}
	return objects
}
