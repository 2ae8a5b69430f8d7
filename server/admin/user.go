package admin

import (
	"bufio"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

const established = "01"

// isOurUser reports whether the connection from from to to was opened on this machine by root or by the user of this process. It asks the
// kernel, which knows the user of each socket. On systems other than Linux, which do not tell, it says no.
func isOurUser(from, to *net.TCPAddr) bool {
	for _, file := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		if uid, known := userIn(file, unmapped(from.AddrPort()), unmapped(to.AddrPort())); known {
			return uid == 0 || uid == os.Geteuid()
		}
	}
	return false
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// userIn returns the user of the socket at from that is connected to to, if the file has it.
func userIn(file string, from, to netip.AddrPort) (uid int, known bool) {
	f, err := os.Open(file) //nolint:gosec // one of two
	if err != nil {
		return 0, false
	}
	defer f.Close() //nolint:errcheck // it is only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // number, address, address of the peer, state, queues, timer, retransmissions, user
		if len(fields) > 7 && fields[3] == established && socketAddress(fields[1]) == from && socketAddress(fields[2]) == to {
			uid, err := strconv.Atoi(fields[7])
			return uid, err == nil
		}
	}
	return 0, false
}

// socketAddress reads an address such as 0100007F:3E8E: words of 32 bits in the byte order of the machine, and the port. It is invalid if
// that is none.
func socketAddress(text string) netip.AddrPort {
	address, port, _ := strings.Cut(text, ":")
	var b []byte
	for ; len(address) >= 8; address = address[8:] {
		word, err := strconv.ParseUint(address[:8], 16, 32)
		if err != nil {
			return netip.AddrPort{}
		}
		b = binary.NativeEndian.AppendUint32(b, uint32(word))
	}
	ip, _ := netip.AddrFromSlice(b)
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}
	}
	return unmapped(netip.AddrPortFrom(ip, uint16(n)))
}
