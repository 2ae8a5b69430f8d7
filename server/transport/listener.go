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
