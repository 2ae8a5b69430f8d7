// Package words says to people what is a number, or the text of a library, to a program, and which name they may have meant.
package words

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"unicode"
)

// Count is a number of things.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Each returns what f says of each of all.
func Each[T any](all []T, f func(T) string) (said []string) {
	for _, one := range all {
		said = append(said, f(one))
	}
	return said
}

// A is a thing with its article, by how it is written: "an EnvoyFilter".
func A(thing string) string {
	if thing != "" && strings.ContainsRune("AEIOaeio", rune(thing[0])) { // a UDPRoute
		return "an " + thing
	}
	return "a " + thing
}

// Connection says what went wrong with a connection to address, given what a library says of it, and which flags or address may help; empty
// if that is not known.
func Connection(address, said string) string {
	means, help := meaning(address, said)
	if help != "" {
		means += ": " + help
	}
	return means
}

// meaning says what went wrong with a connection to address, and what helps who typed the address.
func meaning(address, said string) (means, help string) {
	host := address
	if h, _, err := net.SplitHostPort(address); err == nil {
		host = h
	}
	if names := otherName.FindStringSubmatch(said); names != nil {
		return "its certificate is for " + names[1] + ", and not for " + names[2], "give --tls-server-name"
	}
	for _, known := range []struct{ part, means, help string }{
		{"connection refused", "nobody listens there", ""},
		{"no such file or directory", "there is no such socket", ""},
		{"no such host", "there is no host " + host, ""},
		{"produced zero addresses", "the name of the host " + host + " has no address, or cannot be resolved now", ""}, // as gRPC says both
		{"server misbehaving", "the name of the host " + host + " cannot be resolved now", ""},
		{"network is unreachable", "its network cannot be reached", ""},
		{"no route to host", "there is no way to the host " + host, ""},
		{"i/o timeout", "no connection came about in time", ""},
		{"first record does not look like a TLS handshake", "it does not speak TLS", "leave out the flags and variables of TLS"},
		{"server gave HTTP response to HTTPS client", "it does not speak TLS", "leave out https://"},
		{"signed by unknown authority", "its certificate is signed by nobody who is trusted", "give --tls-ca"},
		{"certificate is not valid for any names", "its certificate is for no name", "give --tls-server-name"},
		{"certificate has expired", "its certificate has expired, or the clock is wrong", ""},
		{"certificate required", "it wants a certificate", "give --tls-cert and --tls-key"},
		{"bad certificate", "it does not take our certificate", "give another one with --tls-cert and --tls-key"},
		{"connection reset by peer", "it closed the connection at once", ""},
		{"broken pipe", "it closed the connection at once", ""},
		{"server preface: EOF", "it closed the connection at once, as one does that speaks TLS alone", "try --tls"},
		{"error reading server preface", "it does not answer as a server of gRPC does", ""},
		{"client sent an HTTP request to an HTTPS server", "it speaks TLS alone", "give https://" + address},
		{"malformed HTTP response", "it does not speak HTTP/1.1, as a port for xDS or another one for gRPC does not", ""},
	} {
		if strings.Contains(strings.ToLower(said), strings.ToLower(known.part)) {
			return known.means, known.help
		}
	}
	return "", ""
}

// otherName is what package x509 says of a certificate for other names.
var otherName = regexp.MustCompile(`certificate is valid for (.+), not ([^\s"]+)`)

// KeyPair says what package tls says of a certificate and a key that it cannot take.
func KeyPair(err error) error {
	if err == nil {
		return nil
	}
	said := strings.TrimPrefix(err.Error(), "tls: ")
	for _, known := range []struct{ part, means string }{
		{"but did find a private key", "the certificate's file has a private key, and no certificate"},
		{"PEM data in certificate input", "there is no certificate in it, or not as PEM"},
		{"found a certificate rather than a key", "the key's file has a certificate, and no private key"},
		{"PEM data in key input", "there is no private key in it, or not as PEM"},
		{"private key does not match", "the private key does not match the certificate: it is that of another one"},
	} {
		if strings.Contains(said, known.part) {
			return errors.New(known.means)
		}
	}
	return errors.New(said)
}

// broken begins what gRPC says of a connection, and not what a server says.
var broken = regexp.MustCompile(`connection error: desc = |name resolver error: |transport: |error reading from server: |error ` +
	`reading server preface`)

// Stream says what a library of gRPC says of a stream to address, in words where they are known: what its connection suffers from, or what
// the server says.
func Stream(address, said string) string {
	if broken.MatchString(said) {
		if means, _ := meaning(address, said); means != "" {
			return means
		}
	}
	return Plain(said)
}

var wrapping = regexp.MustCompile(`rpc error: code = \w+ desc = |connection error: desc = "?|transport: (Error while dialing: ` +
	`|authentication handshake failed: )?`)

// Plain returns what a library of gRPC says, without what only says which library it is.
func Plain(said string) string {
	return strings.Trim(strings.ReplaceAll(wrapping.ReplaceAllString(said, ""), `\"`, `"`), `" `)
}

// Nearest returns the name that was probably meant by s, or "": one that differs in case or by two letters at most.
func Nearest(s string, names []string) string {
	best, bestDistance := "", 3
	if len(s) > 64 {
		return ""
	}
	if len(s) < 5 {
		bestDistance = 2
	}
	for _, name := range names {
		if d := EditDistance(strings.ToLower(s), strings.ToLower(name)); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// Meant says what was probably meant by s, behind what says that it is not known; empty if nothing is near.
func Meant(s string, names []string) string {
	if guess := Nearest(s, names); guess != "" {
		return " (did you mean " + guess + "?)"
	}
	return ""
}

// EditDistance returns the number of letters to insert, delete, replace or swap with the next to make b of a.
func EditDistance(a, b string) int {
	var beforeLast []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], beforeLast[j-2]+1)
			}
		}
		beforeLast, last = last, row
	}
	return last[len(b)]
}

// isPlain reports whether text is printable ASCII.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// Printable returns text with escapes in the place of characters that a terminal obeys instead of showing them, but for some:
// control and format characters, such as those that change the direction of what follows, and separators of lines.
func Printable(text, but string) string {
	if isPlain(text) {
		return text
	}
	is := func(r rune) bool {
		return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && !strings.ContainsRune(but, r)
	}
	if !strings.ContainsFunc(text, is) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !is(r):
			b.WriteRune(r)
		case r > 0xff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\x%02x`, r)
		}
	}
	return b.String()
}
