package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Successor is a process that was started to take over from this one.
type Successor struct {
	*peer
	process *os.Process
	ended   chan struct{}
}

// StartSuccessor starts the program at path with args, which are without its name, to take over. It inherits the sockets, standard output
// and standard error.
func StartSuccessor(path string, args []string, sockets map[string]net.Listener) (*Successor, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(pair[0])
	unix.CloseOnExec(pair[1])
	ours := os.NewFile(uintptr(pair[0]), "successor")
	conn, err := net.FileConn(ours)
	err = errors.Join(err, ours.Close())
	defer unix.Close(pair[1]) //nolint:errcheck // the successor has its own
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(sockets))
	files := []uintptr{0, 1, 2, uintptr(pair[1])}
	for _, name := range names {
		fd, err := duplicate(sockets[name])
		if err != nil {
			return nil, errors.Join(fmt.Errorf("socket %s: %w", name, err), conn.Close())
		}
		defer unix.Close(fd) //nolint:errcheck // the same
		files = append(files, uintptr(fd))
	}
	// Not os/exec: it would have files that it passes on block, and with them the sockets on which we listen.
	attributes := &syscall.ProcAttr{Env: environment(names), Files: files}
	pid, err := syscall.ForkExec(path, append([]string{path}, args...), attributes) //nolint:gosec // it is our own program
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", path, err), conn.Close())
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s := &Successor{peer: newPeer(conn), process: process, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		_, _ = process.Wait() // so that it is no zombie; that it has ended is seen by the connection
	}()
	return s, nil
}

// environment is ours, but for what service managers say to one process alone.
func environment(names []string) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		key, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", variable}, key)
	})
	return append(env, variable+"="+strings.Join(names, ","))
}

// duplicate returns another file of what a listener listens on, which stays open in a program that is started.
func duplicate(lis net.Listener) (fd int, err error) {
	raw, ok := lis.(syscall.Conn)
	if !ok {
		return 0, fmt.Errorf("a %T cannot be handed over", lis)
	}
	conn, err := raw.SyscallConn()
	if err != nil {
		return 0, err
	}
	var dupErr error
	err = conn.Control(func(own uintptr) { fd, dupErr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, dupErr)
}

// Give gives the process pieces of content, each without a line break.
func (s *Successor) Give(ctx context.Context, pieces iter.Seq[string]) error {
	defer context.AfterFunc(ctx, func() { _ = s.conn.SetWriteDeadline(time.Unix(1, 0)) })()
	out := bufio.NewWriter(s.conn)
	for piece := range pieces {
		if _, err := fmt.Fprintf(out, "%s%s\n", content, piece); err != nil {
			return err
		}
	}
	return out.Flush()
}

// PID is the number of the process.
func (s *Successor) PID() int { return s.process.Pid }

// Hangup sends the process SIGHUP.
func (s *Successor) Hangup() { _ = s.process.Signal(syscall.SIGHUP) } // it may have ended

// Kill ends the process, and waits until it has.
func (s *Successor) Kill() {
	_ = s.process.Kill() // it may have ended
	<-s.ended
	_ = s.Close()
}
