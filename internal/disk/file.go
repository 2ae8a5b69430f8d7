package disk

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Unfinished is what the name of a file ends with while Replace makes it.
const Unfinished = ".new"

// What may have become of a file that is there.
var (
	ErrReplaced = errors.New("it is another file than was written")
	ErrShort    = errors.New("the end of it is gone")
	ErrNoRoom   = errors.New("no space left on device") // in tests
)

// File is a file that one process appends to.
type File struct {
	path    string
	file    *os.File // nil if it is closed
	size    int64
	durable bool
	room    int64 // in bytes, for tests; 0 for any
}

// Open opens the file at path behind its first size bytes, and cuts off what follows; the file is made if size is 0. What is appended to a
// durable file is synced.
func Open(path string, size int64, durable bool) (*File, error) {
	flags := os.O_RDWR | os.O_APPEND
	if size == 0 {
		flags |= os.O_CREATE
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || info.Size() != size {
		if err = errors.Join(err, file.Truncate(size)); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return &File{path: path, file: file, size: size, durable: durable}, nil
}

// Size returns how much was written.
func (f *File) Size() int64 { return f.size }

// Durable reports whether what is appended is synced.
func (f *File) Durable() bool { return f.durable }

// SetRoom has the file have room for n bytes, as if the disk were full then.
func (f *File) SetRoom(n int64) { f.room = n }

// IsOpen reports whether the file can be appended to.
func (f *File) IsOpen() bool { return f != nil && f.file != nil }

// Append writes frames at the end, all of them or none. If even that is not known, the file is closed.
func (f *File) Append(frames []byte) error {
	if !f.IsOpen() {
		return fs.ErrClosed
	}
	var err error
	if f.room > 0 && f.size+int64(len(frames)) > f.room {
		err = ErrNoRoom
	} else {
		_, err = f.file.Write(frames)
	}
	if err != nil {
		if cut := f.file.Truncate(f.size); cut != nil {
			return errors.Join(err, cut, f.Close())
		}
		return err
	}
	if f.durable {
		if err := f.file.Sync(); err != nil {
			return errors.Join(err, f.Close()) // what has reached the disk is not known
		}
	}
	f.size += int64(len(frames))
	return nil
}

// Check reports whether the file is still at its path, with all that was written. The error is fs.ErrNotExist, ErrReplaced or ErrShort if
// not.
func (f *File) Check() error {
	there, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	written, err := f.file.Stat()
	switch {
	case err != nil:
		return err
	case !os.SameFile(there, written):
		return ErrReplaced
	case there.Size() < f.size:
		return ErrShort
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error {
	if !f.IsOpen() {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// Replace puts what write writes in the place of the file at path, in one step, and returns its size. A durable file is then on the disk.
func Replace(path string, durable bool, write func(io.Writer) error) (size int64, err error) {
	file, err := os.OpenFile(path+Unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	out := bufio.NewWriterSize(file, 1<<16)
	if err = write(out); err == nil {
		err = out.Flush()
	}
	if err == nil && durable {
		err = file.Sync()
	}
	if err == nil {
		size, err = file.Seek(0, io.SeekCurrent)
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return 0, errors.Join(err, IgnoreMissing(os.Remove(file.Name())))
	}
	if durable {
		return size, syncDir(filepath.Dir(path))
	}
	return size, nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// IgnoreMissing returns err unless it says that a file does not exist.
func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
