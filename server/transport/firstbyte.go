package transport

import "net"

// AwaitFirstByte returns lis with connections whose handshake begins when the client has sent a byte. Until then a connection has no
// buffers, and it takes no turn of limits.connectionsPerSecond.
func AwaitFirstByte(lis net.Listener) net.Listener { return firstByteListener{lis} }

type firstByteListener struct{ net.Listener }

// Accept implements net.Listener.
func (l firstByteListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &firstByteConn{Conn: conn}, nil
}

// firstByteConn returns the byte that it waited for with the next Read.
type firstByteConn struct {
	net.Conn

	first [1]byte
	have  bool
}

// NetConn returns the connection in it, as that of tls.Conn does.
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
	for {
		if c, ok := conn.(*firstByteConn); ok {
			n, err := c.Conn.Read(c.first[:])
			c.have = n > 0
			return err
		}
		outer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		conn = outer.NetConn()
	}
}
