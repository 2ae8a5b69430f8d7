package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// unixScheme begins the address of a unix socket, unix:///run/tributary/admin.sock?mode=0660&group=ops.
const unixScheme = "unix://"

// CheckAddress returns an error of an address, host:port or that of a unix socket.
func CheckAddress(address string) error {
	if strings.HasPrefix(address, unixScheme) {
		_, err := parseUnix(address)
		return err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("want host:port or %s/PATH, got %q", unixScheme, address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("want a port from 0 to 65535, got %q", port)
	}
	return nil
}

// unixSocket is the path and the rights of a unix socket.
type unixSocket struct {
	path  string
	mode  fs.FileMode
	group string // empty for that of the process
}

func parseUnix(address string) (unixSocket, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host != "" || parsed.Path == "" || parsed.Path == "/" || parsed.Fragment != "" {
		return unixSocket{}, fmt.Errorf("want %s/PATH with three slashes, got %q", unixScheme, address)
	}
	socket := unixSocket{path: parsed.Path, mode: 0o600}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return socket, fmt.Errorf("%q: %w", address, err)
	}
	for key, values := range query {
		switch key {
		case "mode":
			mode, err := strconv.ParseUint(values[0], 8, 32)
			if err != nil || mode > 0o777 {
				return socket, fmt.Errorf("mode: want an octal number up to 0777, got %q", values[0])
			}
			socket.mode = fs.FileMode(mode)
		case "group":
			socket.group = values[0]
		default:
			return socket, fmt.Errorf("unknown parameter %q of a unix socket; want mode or group", key)
		}
	}
	return socket, nil
}

// Listen listens on an address, host:port or that of a unix socket. It replaces the socket of an
// earlier process, but not one that another process listens on.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if strings.HasPrefix(address, unixScheme) {
		unixSocket, err := parseUnix(address)
		if err != nil {
			return nil, err
		}
		return unixSocket.listen(ctx)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, inUse(address)
	}
	return listener, refused(address, err)
}

// longPath is the longest path of a socket that every system accepts.
const longPath = 103

// refused returns the system's refusal to listen on address in plain words; nil without one.
func refused(address string, err error) error {
	reason := ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		reason = "this machine does not have the address"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		reason = "this user may not listen there"
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		reason = "there is no such directory"
	case errors.Is(err, syscall.EINVAL) && len(address) > longPath:
		reason = "that is too long for a socket"
	case errors.Is(err, syscall.EROFS):
		reason = "its file system is read-only"
	default:
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return fmt.Errorf("%s: %w", address, err)
	}
	return &refusal{address + ": " + reason, err}
}

// refusal is a refusal of the system in plain words.
type refusal struct {
	message string
	err     error
}

func (r *refusal) Error() string { return r.message }
func (r *refusal) Unwrap() error { return r.err }

func (s unixSocket) listen(ctx context.Context) (net.Listener, error) {
	listener, err := s.bind(ctx)
	if errors.Is(err, syscall.EADDRINUSE) {
		conn, dialErr := (&net.Dialer{}).DialContext(ctx, "unix", s.path)
		if dialErr == nil {
			_ = conn.Close() // it only proves that a process listens
			return nil, inUse(s.path)
		}
		if info, err := os.Lstat(s.path); err != nil || info.Mode()&fs.ModeSocket == 0 {
			return nil, fmt.Errorf("%s is there, and no socket", s.path)
		}
		if err := os.Remove(s.path); err != nil {
			return nil, err
		}
		listener, err = s.bind(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := s.allow(); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

var errNotOurs = errors.New("this process is not in it, and may not give files away: run it in that group " +
	"(Group= of a unit), or have systemd hold the socket (SocketGroup= of a .socket unit)")

// give gives the socket to its group. It avoids forbidden system calls: a filter such as that of the unit would end the
// process.
func (s unixSocket) give() error {
	group, err := user.LookupGroup(s.group)
	if err != nil {
		return errors.New("there is no such group")
	}
	id, err := strconv.Atoi(group.Gid)
	if err != nil {
		return err
	}
	info, err := os.Lstat(s.path)
	switch {
	case err != nil:
		return err
	case groupOf(info) == id:
		return nil // inherited of the directory or the process
	case !mayGive(id):
		return errNotOurs
	}
	return os.Chown(s.path, -1, id)
}

// bind makes the socket, which only the owner can use until allow extends the rights.
func (s unixSocket) bind(ctx context.Context) (listener net.Listener, err error) {
	closed(func() { listener, err = (&net.ListenConfig{}).Listen(ctx, "unix", s.path) })
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, err // perhaps the socket of a process that has ended
	}
	return listener, refused(s.path, err)
}

// allow sets the rights of the socket.
func (s unixSocket) allow() error {
	if s.group != "" {
		if err := s.give(); err != nil {
			return fmt.Errorf("group %s of %s: %w", s.group, s.path, err)
		}
	}
	return os.Chmod(s.path, s.mode)
}

// inUse is an address that another process uses.
type inUse string

func (address inUse) Error() string { return string(address) + " is in use by another program" }

// Is makes it equal to the error of the system.
func (inUse) Is(target error) bool { return target == syscall.EADDRINUSE } //nolint:errorlint // this is the comparison

// groupOf returns the group of a file, -1 if it is unknown.
func groupOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Gid)
	}
	return -1
}

// mayGive reports whether this process may give its files to a group.
func mayGive(group int) bool {
	groups, err := os.Getgroups()
	return os.Geteuid() == 0 || err == nil && slices.Contains(append(groups, os.Getegid()), group) || hasChown()
}

// hasChown reports whether the process has CAP_CHOWN, if that is known.
func hasChown() bool {
	text, _ := os.ReadFile("/proc/self/status") // without it, no
	_, rest, _ := strings.Cut(string(text), "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	rights, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && rights&1 != 0
}

// umask guards changes of the process's umask.
var umask sync.Mutex //nolint:gochecknoglobals // the process has one

// closed calls make with a umask that leaves all rights to the owner. Other files that are made meanwhile have fewer
// rights, too.
func closed(make func()) {
	umask.Lock()
	defer umask.Unlock()
	before := syscall.Umask(0o177)
	defer syscall.Umask(before)
	make()
}
