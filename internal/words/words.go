// Package words says to people what is a number, or the text of a library, to a program.
package words

import (
	"fmt"
	"net"
	"regexp"
	"strings"
)

// Count is a number of things.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Connection says what went wrong with a connection to address, given what a library says of it; empty if that is not known.
func Connection(address, said string) string {
	host := address
	if h, _, err := net.SplitHostPort(address); err == nil {
		host = h
	}
	for _, known := range []struct{ part, means string }{
		{"connection refused", "nobody listens there"},
		{"no such file or directory", "there is no such socket"},
		{"no such host", "there is no host " + host},
		{"server misbehaving", "the name of the host " + host + " cannot be resolved now"},
		{"network is unreachable", "its network cannot be reached"},
		{"no route to host", "there is no way to the host " + host},
		{"i/o timeout", "no connection came about in time"},
		{"first record does not look like a TLS handshake", "it does not speak TLS: leave out the flags and variables of TLS"},
		{"server gave HTTP response to HTTPS client", "it does not speak TLS: leave out https://"},
		{"signed by unknown authority", "its certificate is signed by nobody who is trusted: give --tls-ca"},
		{"certificate is valid for", "its certificate is for another name: give --tls-server-name"},
		{"certificate is not valid for any names", "its certificate is for no name: give --tls-server-name"},
		{"certificate has expired", "its certificate has expired, or the clock is wrong"},
		{"certificate required", "it wants a certificate: give --tls-cert and --tls-key"},
		{"bad certificate", "it does not take our certificate: give another one with --tls-cert and --tls-key"},
		{"connection reset by peer", "it closed the connection at once"},
		{"error reading server preface", "it closed the connection at once, as one does that speaks TLS alone: try --tls"},
		{"client sent an HTTP request to an HTTPS server", "it speaks TLS alone: give https://" + address},
	} {
		if strings.Contains(strings.ToLower(said), strings.ToLower(known.part)) {
			return known.means
		}
	}
	return ""
}

var wrapping = regexp.MustCompile(`rpc error: code = \w+ desc = |connection error: desc = |transport: (Error while dialing: |authentication handshake failed: )?`)

// Plain returns what a library of gRPC says, without what only says which library it is.
func Plain(said string) string {
	return strings.Trim(strings.ReplaceAll(wrapping.ReplaceAllString(said, ""), `\"`, `"`), `" `)
}
