package transport

import "net"

// Secure marks the connections of a listener as such that begin with a handshake of TLS.
func Secure(listener net.Listener) net.Listener { return secureListener{listener} }

type secureListener struct{ net.Listener }

// Accept implements net.Listener.
func (l secureListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return secureConn{conn}, nil
}

type secureConn struct{ net.Conn }

// connectionWithin returns the connection of type T that conn is or wraps, by the method NetConn of tls.Conn.
func connectionWithin[T any](conn net.Conn) (found T, ok bool) {
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
