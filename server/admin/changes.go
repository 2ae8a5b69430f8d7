package admin

import (
	"net"
	"net/http"
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
