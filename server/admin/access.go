package admin

import (
	"bufio"
	"encoding/binary"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/server/identity"
)

// changers refuses those whose certificate is not trusted any more, and those who would change something from another machine, unless they
// may: who is on this one is let in by its own rules, such as the mode of a socket. By a TCP port, only root and the user of this process
// may have it upgraded.
func (s *Server) changers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.opts.Known != nil && r.TLS != nil {
			if err := s.opts.Known(identity.Of(peerOf(r), r.TLS)); err != nil {
				http.Error(w, status.Convert(err).Message(), http.StatusUnauthorized)
				return
			}
		}
		where := "from another machine"
		here := comesFromHere(r)
		if here && r.URL.Path == upgradePath && !mayUpgrade(r) {
			here, where = false, "by another user than root and that of this process"
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead || s.opts.MayChange == nil || here {
			next.ServeHTTP(w, r)
			return
		}
		who := identity.Of(peerOf(r), r.TLS)
		err := s.opts.MayChange(who, r.Header.Values("Authorization"))
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		code := http.StatusUnauthorized
		if status.Code(err) == codes.PermissionDenied {
			code = http.StatusForbidden
		} else {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, r.Method+" "+r.URL.Path+" "+where+": "+status.Convert(err).Message(), code)
	})
}

// comesFromHere says whether a request came in on loopback or by a unix socket.
func comesFromHere(r *http.Request) bool {
	switch local := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return local.IP.IsLoopback()
	}
	return false
}

const upgradePath = "/-/upgrade"

// mayUpgrade reports whether somebody on this machine may have the program upgraded without a proof of who it is.
func mayUpgrade(r *http.Request) bool {
	local, isTCP := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	remote, _ := peerOf(r).(*net.TCPAddr)
	return !isTCP || remote != nil && isOurUser(remote, local)
}

// peerOf returns where a request came from; nil if that cannot be told.
func peerOf(r *http.Request) net.Addr {
	if addr, err := net.ResolveTCPAddr("tcp", r.RemoteAddr); err == nil && !strings.HasPrefix(r.RemoteAddr, ":") {
		return addr
	}
	return nil
}

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

// ownHosts refuses requests that come in on loopback for a host that is not this machine: a name of somebody else's that was made to
// lead here, so that a web page of his may read what we answer (DNS rebinding). On other addresses every name may be one of ours.
func ownHosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && local.IP.IsLoopback() && !own(r.Host) {
			http.Error(w, "the host "+r.Host+" is not this machine: ask for localhost, its name, or an IP address", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// denyForeign answers a page of another origin that would change something.
func denyForeign(w http.ResponseWriter, r *http.Request) {
	from := r.Header.Get("Origin")
	if from == "" {
		from = "another site"
	}
	http.Error(w, r.Method+" "+r.URL.Path+" comes from a web page of "+from+", and is done only for pages of "+r.Host+
		", and for programs that send no Origin", http.StatusForbidden)
}

func own(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(host, ".")
	if name, err := os.Hostname(); err == nil && strings.EqualFold(host, name) {
		return true
	}
	return host == "" || strings.EqualFold(host, "localhost") || net.ParseIP(strings.Trim(host, "[]")) != nil
}
