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

// In an upgrade one process (the successor, new) takes over from another (the predecessor, old) while clients are connected, and inherits
// its listening sockets; internal/relay/upgrade.go runs it. They speak over a pair of sockets, in steps, of which the lines are:
//
//	new: prepared   its configuration is valid
//	old: go         sources and state are paused; the content that clients have comes before this line
//	new: ready      it can serve that content
//	old: yours      the state directory is free
//	new: serving    it has the state directory, serves clients and reads sources
//	old: main       the service manager knows the new process
//
// The new one may send "failed" and the reason instead of any step. Until "serving" the old one can go on as before.

// Step is a line from one process to the other.
type Step string

// The steps, in order.
const (
	Prepared   Step = "prepared"
	Restore    Step = "go"
	Ready      Step = "ready"
	StateFree  Step = "yours"
	Serving    Step = "serving"
	Registered Step = "main"
)

// Lines that begin with these are no steps.
const (
	failed  = "failed "
	content = "content "
)

// maxLine bounds a line in bytes.
const maxLine = 256 << 20

// variable names the sockets that a successor inherits, after that of its predecessor. Its number is the version of the protocol.
const variable = "TRIBUTARY_HANDOVER_2"

// firstFile is the number of the first inherited file after the standard ones.
const firstFile = 3

// peer is the other process.
type peer struct {
	conn    net.Conn
	lines   chan string // closed at the end
	content []string    // received so far
}

func newPeer(conn net.Conn) *peer {
	p := &peer{conn: conn, lines: make(chan string, 8)}
	go func() {
		defer close(p.lines)
		scanner := bufio.NewScanner(conn)
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			p.lines <- scanner.Text()
		}
	}()
	return p
}

// Tell sends a step.
func (p *peer) Tell(step Step) error {
	_, err := fmt.Fprintln(p.conn, step)
	return err
}

// ErrGone says that the other process has ended.
var ErrGone = errors.New("it has ended")

// Await waits for a step of the other process, and keeps the content before it. If that process has ended, it drops the content.
func (p *peer) Await(ctx context.Context, step Step) error {
	for {
		select {
		case said, ok := <-p.lines:
			piece, isContent := strings.CutPrefix(said, content)
			switch {
			case !ok:
				p.content = nil // it may not be all
				return ErrGone
			case isContent:
				p.content = append(p.content, piece)
				continue
			case said == string(step):
				return nil
			case strings.HasPrefix(said, failed):
				return errors.New(strings.TrimPrefix(said, failed))
			}
			return fmt.Errorf("it says %q in place of %q", said, step)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Exchange sends a step and waits for one.
func (p *peer) Exchange(ctx context.Context, tell, await Step) error {
	_ = p.Tell(tell) // an error means that the other process has ended: Await returns why
	return p.Await(ctx, await)
}

// Close ends the conversation.
func (p *peer) Close() error { return p.conn.Close() }

// Predecessor is the process from which this one takes over.
type Predecessor struct {
	*peer
	sockets map[string]net.Listener
}

// PredecessorFromEnvironment returns the process that started this one to take over; nil if none did.
func PredecessorFromEnvironment() (*Predecessor, error) {
	names, ok := os.LookupEnv(variable)
	if !ok {
		return nil, nil
	}
	if err := os.Unsetenv(variable); err != nil { // processes that we start must not have it
		return nil, err
	}
	control := os.NewFile(firstFile, "predecessor")
	conn, err := net.FileConn(control)
	if err = errors.Join(err, control.Close()); err != nil {
		return nil, fmt.Errorf("take over: %w", err)
	}
	p := &Predecessor{peer: newPeer(conn), sockets: make(map[string]net.Listener)}
	for i, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' }) {
		f := os.NewFile(uintptr(firstFile+1+i), name)
		lis, err := net.FileListener(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("take over the socket %s: %w", name, err)
		}
		p.sockets[name] = lis
	}
	return p, nil
}

// Sockets returns the predecessor's listening sockets, by name.
func (p *Predecessor) Sockets() map[string]net.Listener { return p.sockets }

// Content returns the content that the predecessor has sent; nil if there is none.
func (p *Predecessor) Content() []string { return p.content }

// Fail tells the predecessor why it goes on. It may be called on nil.
func (p *Predecessor) Fail(why error) {
	if p == nil {
		return
	}
	_, _ = fmt.Fprintln(p.conn, failed+strings.Join(strings.Fields(why.Error()), " ")) // on an error, it sees that we end
}

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
