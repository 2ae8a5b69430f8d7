package testutil

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Listener is a listener on this machine that lets connections in while it is not shut.
type Listener struct {
	net.Listener

	mu   sync.Mutex
	shut bool
	open map[net.Conn]bool
}

// NewListener returns a listener that is open. Who serves on it closes it.
func NewListener(t testing.TB) *Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of a test
	require.NoError(t, err)
	return &Listener{Listener: l, open: map[net.Conn]bool{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		shut := l.shut
		if !shut {
			l.open[conn] = true
		}
		l.mu.Unlock()
		if !shut {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// Shut ends all connections, and those that are made until Open.
func (l *Listener) Shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = true
	for c := range l.open {
		_ = c.Close()
	}
	clear(l.open)
}

// Open undoes Shut.
func (l *Listener) Open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = false
}
