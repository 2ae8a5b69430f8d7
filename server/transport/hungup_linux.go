package transport

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp reports whether the peer of a connection has closed it, however much of what it sent is not read yet.
func hungUp(conn net.Conn) (gone bool) {
	c, ok := find[syscall.Conn](conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, 0) //nolint:gosec // descriptors are small
		gone = err == nil && n > 0
	})
	return gone || err != nil
}
