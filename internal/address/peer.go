package address

import (
	"net"
	"net/netip"
)

// Host returns the IP address of a peer, for limits. It is "unix" for all Unix sockets, and the whole address if it has
// no IP address.
func Host(addr net.Addr) string {
	if addr.Network() == "unix" { // clients choose the names of their sockets
		return addr.Network()
	}
	if ap, err := netip.ParseAddrPort(addr.String()); err == nil {
		return ap.Addr().Unmap().String()
	}
	return addr.String()
}

// Peer returns the address of a peer for people. A client may name its Unix socket like an IP address.
func Peer(addr net.Addr) string {
	if addr.Network() == "unix" {
		return "unix:" + addr.String()
	}
	return addr.String()
}
