package file

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/btree"
)

// stamp recognises an unchanged file without reading it, as far as possible.
type stamp struct {
	size  int64
	mtime int64 // nanoseconds since 1970
	inode inode
}

// inode identifies a file, independent of its name.
type inode struct {
	dev, id uint64
}

// fileState is the state of a file that was read. The zero value is that of a group of an earlier run.
type fileState struct {
	stamp stamp
	sum   digest
	// doubtful says that the file may have changed with the same stamp, or was not read.
	doubtful bool
}

// sighting is the result of one look at some paths. A path is a file, a directory with all below it, or both in turn.
type sighting struct {
	device  uint64           // of the root
	single  bool             // the root is a file, and the only one
	files   map[string]stamp // files that are read, without empty ones
	blocked map[string]error // unreadable files and directories
	refused map[string]error // links in a circle, which are not followed
	emptied map[string]bool  // files that are read and are empty
}

// fleeting reports whether path is missing in a way that seldom lasts: it is empty, or below a link in a circle.
func (s sighting) fleeting(path string) bool { return s.emptied[path] || isCovered(s.refused, path) }

// compare returns the files to read after a sighting of paths, and the missing ones: neither seen nor below an
// unreadable path. Paths that are true are read even if their stamp is the same. Both results are in order.
func compare(files *btree.Map[string, fileState], paths map[string]bool, seen sighting) (read, missing []string) {
	check := func(filePath string, state fileState) {
		stamp, exists := seen.files[filePath]
		switch {
		case !exists && !isCovered(seen.blocked, filePath):
			missing = append(missing, filePath)
		case exists && (stamp != state.stamp || state.doubtful || paths[filePath]):
			read = append(read, filePath)
		}
	}
	for filePath := range paths {
		if filePath != "" && isCovered(paths, parentOf(filePath)) {
			if k, ok := files.Get(filePath); ok && paths[filePath] {
				check(filePath, k)
			}
			continue
		}
		if k, ok := files.Get(filePath); ok {
			check(filePath, k)
		}
		from := filePath + "/"
		if filePath == "" {
			from = ""
		}
		files.Ascend(from, func(next string, state fileState) bool {
			if !isWithin(next, filePath) {
				return false
			}
			check(next, state)
			return true
		})
	}
	for p := range seen.files {
		if _, ok := files.Get(p); !ok {
			read = append(read, p)
		}
	}
	return inOrder(read), inOrder(missing)
}

// inOrder sorts paths and removes duplicates.
func inOrder(paths []string) []string {
	slices.Sort(paths)
	return slices.Compact(paths)
}

// isCovered reports whether paths has filePath or a directory above it.
func isCovered[V any](paths map[string]V, filePath string) bool {
	for len(paths) > 0 {
		if _, ok := paths[filePath]; ok {
			return true
		}
		if filePath == "" {
			break
		}
		filePath = parentOf(filePath)
	}
	return false
}

// grace has the times when files were first missing. A file is deleted only if two looks, at least a while apart, both
// missed it: many programs write a file by removing or emptying it first.
type grace map[string]time.Time

// judge returns, of the files that a look at time now missed, the deleted ones, which have been missing for their
// while, and the pending ones. It forgets files that were not missing this time.
func (g *grace) judge(
	missing []string, now time.Time, while func(path string) time.Duration,
) (deleted, pending []string) {
	next := make(grace, len(missing))
	for _, filePath := range missing {
		firstMissed, ok := (*g)[filePath]
		if !ok {
			firstMissed = now
		}
		next[filePath] = firstMissed
		if now.Sub(firstMissed) >= while(filePath) {
			deleted = append(deleted, filePath)
		} else {
			pending = append(pending, filePath)
		}
	}
	*g = next
	return deleted, pending
}

// Hidden reports whether a name is that of a hidden file or directory, which is neither read nor walked: version
// control, editors' swap files, the directories of Kubernetes' volume mounts, and those of file systems.
func Hidden(name string) bool { return strings.HasPrefix(name, ".") || name == "lost+found" }

// Reads reports whether a file of this name is read. Backups such as "a.yaml~", "#a.yaml#" and "a.yaml.bak" are not.
func Reads(name string) bool {
	if Hidden(name) {
		return false
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// Paths within the root are slash-separated and relative to it; the root itself is the empty one.

// join returns the path of name in directory dir.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// parentOf returns the directory of p, which is not the root.
func parentOf(p string) string {
	if dir := path.Dir(p); dir != "." {
		return dir
	}
	return ""
}

// isWithin reports whether p is dir or below it.
func isWithin(p, dir string) bool {
	return dir == "" || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// underDir returns the path of name, which is clean, in directory dir of the file system.
func underDir(dir, name string) string {
	if dir == "." {
		return name
	}
	if os.IsPathSeparator(dir[len(dir)-1]) { // the root of the file system
		return dir + name
	}
	return dir + string(filepath.Separator) + name
}

// containsPath is isWithin for paths of the file system.
func containsPath(dir, p string) bool {
	rel, err := filepath.Rel(dir, p)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
