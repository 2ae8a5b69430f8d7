package admin

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/server/identity"
)

// authorize refuses requests with a certificate that is no longer trusted, and changes by clients on other machines
// that lack the right. Changes from this machine need no right: its operator limits them, as by the mode of the socket.
func (s *Server) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		reads := request.Method == http.MethodGet || request.Method == http.MethodHead
		needsRight := !reads && !fromThisMachine(request)
		var err error
		if s.opts.Authorize != nil {
			client := identity.FromConnection(peerOf(request), request.TLS)
			err = s.opts.Authorize(client, request.Header.Values("Authorization"), needsRight)
		}
		if err == nil {
			next.ServeHTTP(response, request)
			return
		}
		code, message := http.StatusUnauthorized, status.Convert(err).Message()
		switch status.Code(err) {
		case codes.PermissionDenied:
			code = http.StatusForbidden
		case codes.Unavailable: // a reload changes the rights of the client
			code = http.StatusServiceUnavailable
		default:
			response.Header().Set("WWW-Authenticate", "Bearer")
		}
		if needsRight {
			message = request.Method + " " + request.URL.Path + " from another machine: " + message
		}
		http.Error(response, message, code)
	})
}

// fromThisMachine reports whether a request came in on loopback or by a unix socket.
func fromThisMachine(r *http.Request) bool {
	switch local := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return local.IP.IsLoopback()
	}
	return false
}

// peerOf returns the address of the client, or nil.
func peerOf(r *http.Request) net.Addr {
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return net.TCPAddrFromAddrPort(peer)
	}
	return nil
}

// refuseOtherHosts refuses requests on loopback for the name of another machine: by DNS rebinding, a web page makes its
// own name resolve to this machine, to read the answers. On other addresses, any name may be one of this machine.
func refuseOtherHosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		local, isTCP := request.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if isTCP && local.IP.IsLoopback() && !isThisMachine(request.Host) {
			http.Error(response, "the host "+request.Host+" is not this machine: ask for localhost, its name, or an IP address",
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(response, request)
	})
}

// isThisMachine reports whether a Host header is an IP address, localhost or the hostname.
func isThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(host, ".")
	if name, err := os.Hostname(); err == nil && strings.EqualFold(host, name) {
		return true
	}
	return host == "" || strings.EqualFold(host, "localhost") || net.ParseIP(strings.Trim(host, "[]")) != nil
}

// refuseOtherSites refuses requests that a browser sends for web pages of other sites. The pages cannot read the
// answers, but each answer costs work. Links from other sites pass, except to pages below /debug/.
func refuseOtherSites(next http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		site := request.Header.Get("Sec-Fetch-Site")
		isLink := request.Header.Get("Sec-Fetch-Mode") == "navigate" && !strings.HasPrefix(request.URL.Path, indexPath)
		if (site == "cross-site" || site == "same-site") && !isLink {
			denyCrossOrigin(response, request)
			return
		}
		next.ServeHTTP(response, request)
	})
}

// denyCrossOrigin answers a request of a web page of another origin.
func denyCrossOrigin(w http.ResponseWriter, r *http.Request) {
	origin := cmp.Or(r.Header.Get("Origin"), "another site")
	http.Error(w, r.Method+" "+r.URL.Path+" comes from a web page of "+origin+", and is done only for pages of "+r.Host+
		", and for programs that send no Origin", http.StatusForbidden)
}
