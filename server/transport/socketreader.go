package transport

import (
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"
)

// socketReader reads a socket into a buffer that it takes when there is something to read. Its zero value is the reader
// of a connection that has no socket of its own, such as one of TLS.
type socketReader struct {
	socket syscall.RawConn
	read   func(fd uintptr) (ready bool) // tryRead; made once, since each read would allocate it

	// of one read
	size   int
	pool   mem.BufferPool
	buffer *[]byte
	n      int
	err    error
}

// ReadOnReady lets gRPC take a buffer when there is something to read, so that idle connections have none. gRPC does so
// by itself only for connections that are not wrapped.
func (c *connection) ReadOnReady(size int, pool mem.BufferPool) (buffer *[]byte, n int, err error) {
	if c.socket.socket == nil || len(c.unread) > 0 {
		buffer = pool.Get(size)
		n, err = c.Read(*buffer)
		return buffer, n, err
	}
	if buffer, n, err = c.socket.next(size, pool); err != nil {
		return nil, 0, err
	}
	if err = c.countPayload((*buffer)[:n]); err != nil {
		pool.Put(buffer)
		return nil, 0, err
	}
	return buffer, n, nil
}

func newSocketReader(connection net.Conn) socketReader {
	if counted, ok := connection.(*countedConn); ok {
		connection = counted.Conn
	}
	switch connection.(type) {
	case *net.TCPConn, *net.UnixConn: // others, such as those of TLS, read more than the socket
	default:
		return socketReader{}
	}
	socket, _ := connection.(syscall.Conn).SyscallConn() // it fails for a closed connection; then Read says so
	return socketReader{socket: socket}
}

// next waits until the socket can be read, and reads once.
func (r *socketReader) next(size int, pool mem.BufferPool) (buffer *[]byte, n int, err error) {
	if r.read == nil {
		r.read = r.tryRead
	}
	r.size = size
	r.pool = pool
	r.buffer = nil
	err = r.socket.Read(r.read)
	buffer = r.buffer
	switch {
	case err != nil: // the connection is closed, or its deadline has passed
	case r.err != nil:
		err = r.err
	case r.n == 0:
		err = io.EOF
	default:
		return buffer, r.n, nil
	}
	if buffer != nil {
		pool.Put(buffer)
	}
	return nil, 0, err
}

// tryRead reads once, and reports whether there was something to read.
func (r *socketReader) tryRead(fd uintptr) (ready bool) {
	r.buffer = r.pool.Get(r.size)
	r.n, r.err = syscall.Read(int(fd), *r.buffer) //nolint:gosec // a file descriptor
	ready = r.err != syscall.EAGAIN               //nolint:errorlint // it is not wrapped
	if !ready {
		r.pool.Put(r.buffer)
		r.buffer = nil
	}
	return ready
}
