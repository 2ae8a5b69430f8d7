package transport

import (
	"net"
	"slices"
	"sync"

	"tributary/internal/address"
)

// FairListener limits the connections to the admin server: to limit in all, to half of it from each remote address, and
// to limit-1 from all remote addresses together, so that this machine always has one left. A new connection beyond a
// limit ends the oldest one of the host with the most connections. All users of this machine share a host. It is safe
// for concurrent use.
type FairListener struct {
	net.Listener

	limit int

	mu          sync.Mutex
	connections []*fairConnection // in order of arrival
}

// fairConnection is a connection of a FairListener.
type fairConnection struct {
	net.Conn

	listener *FairListener
	host     string
}

// NewFairListener returns listener with at most limit connections.
func NewFairListener(listener net.Listener, limit int) *FairListener {
	return &FairListener{Listener: listener, limit: limit}
}

// Accept implements net.Listener.
func (l *FairListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	accepted := &fairConnection{Conn: conn, listener: l, host: hostOf(conn.RemoteAddr())}
	if replaced := l.admit(accepted); replaced != nil {
		_ = replaced.Close() // its requests are canceled
	}
	return accepted, nil
}

// thisMachine is the host of all connections from loopback and over unix sockets.
const thisMachine = "this machine"

func hostOf(addr net.Addr) string {
	host := address.Host(addr)
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() || host == "unix" {
		return thisMachine
	}
	return host
}

// admit adds a connection, and returns the connection that has to end for it, or nil.
func (l *FairListener) admit(added *fairConnection) (replaced *fairConnection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := len(l.connections) + 1
	perHost := map[string]int{added.host: 1}
	for _, c := range l.connections {
		perHost[c.host]++
	}
	isRemote := added.host != thisMachine
	var mayEnd func(host string) bool // a connection of a host; nil if none has to
	switch {
	case isRemote && perHost[added.host] > l.limit/2:
		mayEnd = func(host string) bool { return host == added.host }
	case isRemote && total-perHost[thisMachine] >= l.limit:
		mayEnd = func(host string) bool { return host != thisMachine }
	case total > l.limit:
		mayEnd = func(string) bool { return true }
	}
	if mayEnd != nil {
		for _, c := range l.connections {
			if mayEnd(c.host) && (replaced == nil || perHost[c.host] > perHost[replaced.host]) {
				replaced = c
			}
		}
	}
	l.connections = append(l.connections, added)
	return replaced
}

// Close implements net.Conn.
func (c *fairConnection) Close() error {
	c.listener.mu.Lock()
	c.listener.connections = slices.DeleteFunc(c.listener.connections,
		func(other *fairConnection) bool { return other == c })
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
