// Package doortest is where servers of tests listen that can be away.
package doortest

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Door is a listener on this machine that lets connections in while it is not shut.
type Door struct {
	net.Listener

	mu   sync.Mutex
	shut bool
	open map[net.Conn]bool
}

// New returns a door that is open. Who serves on it closes it.
func New(t testing.TB) *Door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of a test
	require.NoError(t, err)
	return &Door{Listener: l, open: map[net.Conn]bool{}}
}

// Accept implements net.Listener.
func (d *Door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		shut := d.shut
		if !shut {
			d.open[c] = true
		}
		d.mu.Unlock()
		if !shut {
			return c, nil
		}
		_ = c.Close()
	}
}

// Shut ends all connections, and those that are made until Open.
func (d *Door) Shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = true
	for c := range d.open {
		_ = c.Close()
	}
	clear(d.open)
}

// Open undoes Shut.
func (d *Door) Open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = false
}
