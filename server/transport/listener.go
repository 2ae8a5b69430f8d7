package transport

import "net"

// wrapped is a listener whose connections are wrapped.
type wrapped struct {
	net.Listener

	wrap func(net.Conn) net.Conn
}

// Accept implements net.Listener.
func (l wrapped) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.wrap(conn), nil
}

// find returns the connection of type T that conn is, or that is in it, as tls.Conn and our connections have one.
func find[T any](conn net.Conn) (found T, ok bool) {
	for {
		if found, ok = conn.(T); ok {
			return found, true
		}
		outer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return found, false
		}
		conn = outer.NetConn()
	}
}

// Secure marks the connections of lis as such that begin with a handshake.
func Secure(lis net.Listener) net.Listener {
	return wrapped{lis, func(conn net.Conn) net.Conn { return secureConn{conn} }}
}

type secureConn struct{ net.Conn }

// NetConn returns the wrapped connection.
func (c secureConn) NetConn() net.Conn { return c.Conn }

// AwaitFirstByte returns lis with connections whose handshake begins when the client has sent a byte. Until then a connection has no
// buffers, and it takes no turn of limits.connectionsPerSecond.
func AwaitFirstByte(lis net.Listener) net.Listener {
	return wrapped{lis, func(conn net.Conn) net.Conn { return &firstByteConn{Conn: conn} }}
}

// firstByteConn returns the byte that it waited for with the next Read.
type firstByteConn struct {
	net.Conn

	first [1]byte
	have  bool
}

// NetConn returns the wrapped connection.
func (c *firstByteConn) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *firstByteConn) Read(b []byte) (int, error) {
	if !c.have || len(b) == 0 {
		return c.Conn.Read(b)
	}
	c.have = false
	return copy(b, c.first[:]), nil
}

// awaitFirstByte waits for the first byte of a connection of AwaitFirstByte, until the deadline of the connection.
func awaitFirstByte(conn net.Conn) error {
	c, ok := find[*firstByteConn](conn)
	if !ok {
		return nil
	}
	n, err := c.Conn.Read(c.first[:])
	c.have = n > 0
	return err
}
