package file

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// disk is what the source asks of the file system. Tests put one in its place that refuses.
type disk interface {
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	Open(name string) (fs.File, error)
}

type osDisk struct{}

func (osDisk) Lstat(name string) (fs.FileInfo, error)     { return os.Lstat(name) }
func (osDisk) Readlink(name string) (string, error)       { return os.Readlink(name) }
func (osDisk) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Open does not wait for a writer, should a pipe have taken the place of the file.
func (osDisk) Open(name string) (fs.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// stampOf returns the stamp of a file.
func stampOf(fi fs.FileInfo) stamp {
	return stamp{size: fi.Size(), mtime: fi.ModTime().UnixNano(), inode: identity(fi)}
}

// anchor is a name in a real directory. When something happens to it, whatever was found through it may be elsewhere.
type anchor struct {
	dir, name string
}

// maxLinks is how many symbolic links one path may go through: as many as Linux allows.
const maxLinks = 40

// resolve follows the symbolic links in an absolute path as the kernel does. It returns the real path and the anchors on
// which it hangs: each name on the way, since any directory may be moved and another put in its place, as any link may be
// led elsewhere. If the path leads nowhere they are those up to the name that is missing, so that whoever watches them
// learns when it appears.
func resolve(d disk, name string) (real string, anchors []anchor, err error) {
	sep := string(filepath.Separator)
	volume := filepath.VolumeName(name)
	at := volume + sep
	todo := strings.Split(name[len(volume):], sep)
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := under(at, part)
		if a := (anchor{at, part}); !slices.Contains(anchors, a) {
			anchors = append(anchors, a)
		}
		fi, err := d.Lstat(next)
		if err != nil {
			return "", anchors, err
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", anchors, &fs.PathError{Op: "follow", Path: name, Err: syscall.ELOOP}
		}
		target, err := d.Readlink(next)
		if err != nil {
			return "", anchors, err
		}
		if filepath.IsAbs(target) {
			at = filepath.VolumeName(target) + sep
		}
		todo = append(strings.Split(target, sep), todo...)
	}
	return at, anchors, nil
}
