package admin

import (
	"net"
	"net/http"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/server/identity"
)

// changers refuses those whose certificate is not trusted any more, and those who would change something from another machine, unless they
// may: who is on this one is let in by its own rules, such as the mode of a socket.
func (s *Server) changers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.opts.Known != nil && r.TLS != nil {
			if err := s.opts.Known(identity.Of(peerOf(r), r.TLS)); err != nil {
				http.Error(w, status.Convert(err).Message(), http.StatusUnauthorized)
				return
			}
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead || s.opts.MayChange == nil || comesFromHere(r) {
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
		http.Error(w, r.Method+" "+r.URL.Path+" from another machine: "+status.Convert(err).Message(), code)
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

// peerOf returns where a request came from; nil if that cannot be told.
func peerOf(r *http.Request) net.Addr {
	if addr, err := net.ResolveTCPAddr("tcp", r.RemoteAddr); err == nil && !strings.HasPrefix(r.RemoteAddr, ":") {
		return addr
	}
	return nil
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
