package admin

import (
	"net"
	"net/http"
	"os"
	"strings"
)

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
