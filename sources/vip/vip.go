// Package vip gives hosts virtual addresses that stay the same.
//
// A service of a protocol without hosts, such as TCP, needs an address of its own so that a sidecar can distinguish it.
// istiod allocates addresses for ServiceEntries of Kubernetes only. Here, an address is a hash of the host, so that
// several tributaries and restarts agree without communication. A rare host with a used address gets the next free one;
// that depends on the order of the two hosts, and is stored in a file.
package vip

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
)

// Default is the default range of addresses. It lies in the part of the address space that is reserved and never
// routed, like Istio's 240.240.0.0/16, but outside of it. Consul gives virtual addresses from 240.0.0.1 upwards,
// one after the other, and would need 16.7 million services to get here. It is large: among 1,000 hosts, two get the
// same hash with a chance of one in 30. In a /16, seven or eight hosts would.
var Default = netip.MustParsePrefix("241.0.0.0/8")

// istio is the range of the addresses that istiod allocates.
var istio = netip.MustParsePrefix("240.240.0.0/16")

// minHostBits is the size of the smallest range: 256 addresses.
const minHostBits = 8

// Table holds the addresses of hosts. It is safe for concurrent use.
type Table struct {
	prefix netip.Prefix
	size   uint64 // a power of two

	mu      sync.Mutex
	byHost  map[string]netip.Addr
	byAddr  map[netip.Addr]string
	changed bool // since it was last taken to be saved
	bell    chan struct{}
}

// New returns a table of addresses in prefix.
func New(prefix netip.Prefix) (*Table, error) {
	switch {
	case !prefix.IsValid():
		return nil, fmt.Errorf("not a range")
	case prefix.Addr().BitLen()-prefix.Bits() < minHostBits:
		return nil, fmt.Errorf("%s is too small: at least %d addresses are needed", prefix, 1<<minHostBits)
	case prefix.Overlaps(istio):
		return nil, fmt.Errorf("istiod gives addresses of %s itself", istio)
	}
	return &Table{
		prefix: prefix.Masked(),
		// 62 bits are more than there will be hosts.
		size:   1 << min(62, prefix.Addr().BitLen()-prefix.Bits()),
		byHost: map[string]netip.Addr{}, byAddr: map[netip.Addr]string{}, bell: make(chan struct{}, 1),
	}, nil
}

// Address returns the address of a host, the same at each call. It fails when no address is left.
func (t *Table) Address(host string) (netip.Addr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, exists := t.byHost[host]; exists {
		return a, nil
	}
	sum := sha256.Sum256([]byte(host))
	start := binary.BigEndian.Uint64(sum[:])
	// The candidates outnumber the used and the few unusable addresses, so that one of them is free.
	for i := range min(t.size, 2*uint64(len(t.byHost))+minHostBits) {
		address := t.addressAt((start + i) % t.size)
		if _, taken := t.byAddr[address]; taken || !usable(address) {
			continue
		}
		t.put(host, address)
		t.changed = true
		select {
		case t.bell <- struct{}{}:
		default:
		}
		return address, nil
	}
	return netip.Addr{}, fmt.Errorf("virtual addresses: all of %s are given away", t.prefix)
}

func (t *Table) put(host string, a netip.Addr) { t.byHost[host], t.byAddr[a] = a, host }

// addressAt returns an address of the range by its number.
func (t *Table) addressAt(n uint64) netip.Addr {
	b := t.prefix.Addr().AsSlice()
	var offset [8]byte
	binary.BigEndian.PutUint64(offset[:], n)
	for i := range min(len(b), len(offset)) {
		b[len(b)-1-i] |= offset[len(offset)-1-i]
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// usable excludes addresses that look like those of networks or broadcasts, which some programs refuse.
func usable(a netip.Addr) bool {
	b := a.AsSlice()
	last := b[len(b)-1]
	return last != 0 && last != 255
}
