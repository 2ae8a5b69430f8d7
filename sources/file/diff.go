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

// stamp tells whether a file is still the one that was read, as far as that can be told without reading it.
type stamp struct {
	size  int64
	mtime int64 // nanoseconds since 1970
	inode inode
}

// inode is which file it is, whatever it is called.
type inode struct {
	dev, id uint64
}

// known is what is known of a file that was read, or, as the zero value, of a group that an earlier run published.
type known struct {
	stamp stamp
	sum   digest
	// doubtful says that the file may have changed since without its stamp showing it, or was not read.
	doubtful bool
}

// sighting is what one look at some paths found. A path is that of a file, of a directory with all below it, or both in
// turn.
type sighting struct {
	device  uint64           // of the root
	single  bool             // the root is a file, and the only one
	files   map[string]stamp // the files that count, but for empty ones
	blocked map[string]error // what is there, but cannot be looked into; nothing is known of it and all below it
	refused map[string]error // links that are not followed, since they lead in a circle; there is nothing below them
	emptied map[string]bool  // the files that count and are empty
}

// fleeting reports whether path is missing in a way that seldom lasts: it is there, and is empty, or a link on the way to
// it leads in a circle.
func (s sighting) fleeting(path string) bool { return s.emptied[path] || behind(s.refused, path) }

// compare works out, from what is known and a sighting of paths, which files to read, and which are missing: known, and
// neither seen nor behind something blocked. Of the paths those that are true are read even if they look the same. Both
// results are in order.
func compare(all *btree.Map[string, known], paths map[string]bool, seen sighting) (read, missing []string) {
	check := func(p string, k known) {
		s, there := seen.files[p]
		switch {
		case !there && !behind(seen.blocked, p):
			missing = append(missing, p)
		case there && (s != k.stamp || k.doubtful || paths[p]):
			read = append(read, p)
		}
	}
	for p := range paths {
		if p != "" && covered(paths, parent(p)) {
			if k, ok := all.Get(p); ok && paths[p] {
				check(p, k)
			}
			continue
		}
		if k, ok := all.Get(p); ok {
			check(p, k)
		}
		from := p + "/"
		if p == "" {
			from = ""
		}
		all.Ascend(from, func(q string, k known) bool {
			if !within(q, p) {
				return false
			}
			check(q, k)
			return true
		})
	}
	for p := range seen.files {
		if _, ok := all.Get(p); !ok {
			read = append(read, p)
		}
	}
	return inOrder(read), inOrder(missing)
}

// inOrder sorts paths and removes what is there twice.
func inOrder(paths []string) []string {
	slices.Sort(paths)
	return slices.Compact(paths)
}

// covered reports whether paths has p or a directory above it.
func covered(paths map[string]bool, p string) bool {
	for {
		if _, ok := paths[p]; ok {
			return true
		}
		if p == "" {
			return false
		}
		p = parent(p)
	}
}

// behind reports whether p or a directory above it is blocked.
func behind(blocked map[string]error, p string) bool {
	if len(blocked) == 0 {
		return false
	}
	for {
		if blocked[p] != nil {
			return true
		}
		if p == "" {
			return false
		}
		p = parent(p)
	}
}

// grace remembers since when files are missing. A file is gone only if two looks, at least a while apart, both missed it:
// many programs write a file by removing or emptying it first.
type grace map[string]time.Time

// judge takes the files that a look at time now missed. It returns those that are gone, having been missed for at least
// their while already, and those that are not yet. It forgets the files that were not missed this time.
func (g *grace) judge(missing []string, now time.Time, while func(path string) time.Duration) (gone, pending []string) {
	next := make(grace, len(missing))
	for _, p := range missing {
		since, ok := (*g)[p]
		if !ok {
			since = now
		}
		next[p] = since
		if now.Sub(since) >= while(p) {
			gone = append(gone, p)
		} else {
			pending = append(pending, p)
		}
	}
	*g = next
	return gone, pending
}

// Hidden reports whether a name is that of a hidden file or directory, which is neither read nor walked: version control,
// editors' swap files, the directories behind the links that Kubernetes makes when it mounts a volume, and a file
// system's own.
func Hidden(name string) bool { return strings.HasPrefix(name, ".") || name == "lost+found" }

// Reads reports whether a file of this name is read. Backups such as "a.yaml~", "#a.yaml#" and "a.yaml.bak" do not end
// in what counts.
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
