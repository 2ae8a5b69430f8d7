package xds

import (
	"net"

	"golang.org/x/sys/unix"
)

// hasGone reports whether a client has hung up, without reading what it sent before. It is false where that cannot be told.
func hasGone(c net.Conn) (gone bool) {
	raw := below(c)
	if raw == nil {
		return false
	}
	err := raw.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} //nolint:gosec // a descriptor is small
		n, err := unix.Poll(look, 0)
		gone = err == nil && n > 0 && look[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone || err != nil
}
