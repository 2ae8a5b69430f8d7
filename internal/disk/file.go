package disk

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Unfinished is the suffix of a file while Replace makes it.
const Unfinished = ".new"

// Errors of an existing file.
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
	room    int64 // in bytes, for tests; 0 without a limit
}

// Open opens the file at path for appending after its first size bytes, and removes the rest. It makes the file if size
// is 0. Appends to a durable file are synced.
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

// Size returns the number of written bytes.
func (f *File) Size() int64 { return f.size }

// Durable reports whether appends are synced.
func (f *File) Durable() bool { return f.durable }

// SetRoom limits the file to n bytes, as if the disk were full.
func (f *File) SetRoom(n int64) { f.room = n }

// IsOpen reports whether the file can be appended to.
func (f *File) IsOpen() bool { return f != nil && f.file != nil }

// Append writes all frames at the end or none. If the result is unknown, it closes the file.
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
			return errors.Join(err, f.Close()) // the written part is unknown
		}
	}
	f.size += int64(len(frames))
	return nil
}

// Check checks that the file is still at its path with all written bytes. The error is fs.ErrNotExist, ErrReplaced or
// ErrShort.
func (f *File) Check() error {
	current, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	written, err := f.file.Stat()
	switch {
	case err != nil:
		return err
	case !os.SameFile(current, written):
		return ErrReplaced
	case current.Size() < f.size:
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

// Replace replaces the file at path by the output of write in one step, and returns its size. A durable file is on the
// disk then.
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
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// IgnoreMissing returns err unless it says that a file does not exist.
func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
