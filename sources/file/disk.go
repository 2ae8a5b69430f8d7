package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// disk is the file system. Tests replace it by one that fails.
type disk interface {
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
	// ReadDir lists the directory at name, with root as for Open.
	ReadDir(root, name string) ([]fs.DirEntry, error)
	// Open opens the file at name. Unless root is empty, name is below it, and a link that leads out of root is an error,
	// even if it was made after the last look.
	Open(root, name string) (fs.File, error)
}

type osDisk struct{}

func (osDisk) Lstat(name string) (fs.FileInfo, error) { return os.Lstat(name) }
func (osDisk) Readlink(name string) (string, error)   { return os.Readlink(name) }

func (d osDisk) ReadDir(root, name string) ([]fs.DirEntry, error) {
	file, err := d.Open(root, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()           //nolint:errcheck // only read
	dir := file.(fs.ReadDirFile) // an os.File
	entries, err := dir.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// openFlags do not wait for a writer, should a pipe have taken the place of the file.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK

func (d osDisk) Open(root, name string) (fs.File, error) {
	if root == "" {
		return os.OpenFile(name, openFlags, 0)
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // only read
	f, err := openIn(dir, root, name)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return f, err
	}
	// os.Root takes an absolute link for one that leads out.
	real, _, err := resolve(d, root)
	if err != nil {
		return nil, err
	}
	target, _, err := resolve(d, name)
	if err != nil {
		return nil, err
	}
	if !containsPath(real, target) {
		return nil, leadsOut(name, target)
	}
	return openIn(dir, real, target)
}

// openIn opens name, which is below root, in dir, which is that directory.
func openIn(dir *os.Root, root, name string) (fs.File, error) {
	relative, err := filepath.Rel(root, name)
	if err != nil {
		return nil, err
	}
	file, err := dir.OpenFile(relative, openFlags, 0)
	if bad, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: bad.Err}
	}
	return file, err
}

// leadsOut returns the error of a link that is not followed.
func leadsOut(link, to string) error {
	return fmt.Errorf("%s leads out of the source's directory, to %s, and is not followed: followLinks: true follows it",
		link, to)
}

// identity returns the device and inode of a file, which change when another file takes its name.
func identity(fi fs.FileInfo) inode {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return inode{dev: uint64(st.Dev), id: st.Ino} //nolint:unconvert // the type of Dev differs between systems
	}
	return inode{}
}

// stampOf returns the stamp of a file.
func stampOf(fi fs.FileInfo) stamp {
	return stamp{size: fi.Size(), mtime: fi.ModTime().UnixNano(), inode: identity(fi)}
}

// anchor is a name in a real directory. A change of it may change the real path of all that was found through it.
type anchor struct {
	dir, name string
}

// maxLinks is the limit of symbolic links in one path, that of Linux.
const maxLinks = 40

// resolve follows the symbolic links in an absolute path as the kernel does. It returns the real path and its anchors:
// each name on the way, since any directory may be replaced, and any link changed. If the path leads nowhere, they end
// with the missing name, so that a watch of them reports its appearance.
func resolve(disk disk, name string) (real string, anchors []anchor, err error) {
	separator := string(filepath.Separator)
	volume := filepath.VolumeName(name)
	current := volume + separator
	todo := strings.Split(name[len(volume):], separator)
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			current = filepath.Dir(current)
			continue
		}
		next := underDir(current, part)
		if a := (anchor{current, part}); !slices.Contains(anchors, a) {
			anchors = append(anchors, a)
		}
		info, err := disk.Lstat(next)
		if err != nil {
			return "", anchors, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			current = next
			continue
		}
		if links++; links > maxLinks {
			return "", anchors, &fs.PathError{Op: "follow", Path: name, Err: syscall.ELOOP}
		}
		target, err := disk.Readlink(next)
		if err != nil {
			return "", anchors, err
		}
		if filepath.IsAbs(target) {
			current = filepath.VolumeName(target) + separator
		}
		todo = append(strings.Split(target, separator), todo...)
	}
	return current, anchors, nil
}
