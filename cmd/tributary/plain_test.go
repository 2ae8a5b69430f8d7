package main

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// A flag of TLS is refused if the address has no TLS.
func TestCommands_TLSFlags(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is at hand
	require.NoError(t, err)
	defer listener.Close() //nolint:errcheck // it is over
	first := make(chan byte, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		b := make([]byte, 1)
		_, _ = conn.Read(b)
		first <- b[0]
		_ = conn.Close()
	}()
	require.Equal(t, 1, command(t, "status", "--tls", "--admin", listener.Addr().String()).code)
	require.EqualValues(t, 22, <-first, "a handshake")
}
