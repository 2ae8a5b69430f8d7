package file

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

// hidden reports whether a name is that of a hidden file or directory, which is neither read nor walked: version control,
// editors' swap files, the directories behind the links that Kubernetes makes when it mounts a volume, and a file
// system's own.
func hidden(name string) bool { return strings.HasPrefix(name, ".") || name == "lost+found" }

// counts reports whether a file of this name is read. Backups such as "a.yaml~", "#a.yaml#" and "a.yaml.bak" do not end
// in what counts.
func counts(name string) bool {
	if hidden(name) {
		return false
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// Reads reports whether the source reads a file of this name.
func Reads(name string) bool { return counts(name) }

// Hidden reports whether the source passes over a file or directory of this name whatever it is.
func Hidden(name string) bool { return hidden(name) }

// Paths within the root are slash-separated and relative to it; the root itself is the empty one.

// join returns the path of name in directory dir.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// parent returns the directory of p, which is not the root.
func parent(p string) string {
	if dir := path.Dir(p); dir != "." {
		return dir
	}
	return ""
}

// within reports whether p is dir or below it.
func within(p, dir string) bool {
	return dir == "" || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// under returns the path of name, which is clean, in directory dir of the file system.
func under(dir, name string) string {
	if dir == "." {
		return name
	}
	if os.IsPathSeparator(dir[len(dir)-1]) { // the root of the file system
		return dir + name
	}
	return dir + string(filepath.Separator) + name
}

// contains does what within does, for the paths of the file system.
func contains(dir, p string) bool {
	rel, err := filepath.Rel(dir, p)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
