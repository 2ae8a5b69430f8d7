//go:build unix

package xds

import (
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// awaitWord waits until a client has said something, which stays to be read; until the connection's deadline. It returns io.EOF if the client hung up instead.
func awaitWord(c net.Conn) error {
	raw := below(c)
	if raw == nil {
		return nil
	}
	var n int
	var err error
	wait := raw.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK) //nolint:gosec // a descriptor is small
		return err != unix.EAGAIN && err != unix.EINTR                     //nolint:errorlint // an Errno
	})
	switch {
	case wait != nil:
		return wait
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	return nil
}

// below returns the system's connection that c is made of; nil if there is none.
func below(c net.Conn) syscall.RawConn {
	for {
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
