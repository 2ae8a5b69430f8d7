// Package words writes messages for people: counts, errors of libraries in plain words, and suggestions for mistyped
// names.
package words

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"unicode"
)

// Count returns a number with a noun in the singular or plural.
func Count(number int, singular, plural string) string {
	if number == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", number, plural)
}

// Each converts values, in their order.
func Each[T, U any](values []T, convert func(T) U) (converted []U) {
	for _, value := range values {
		converted = append(converted, convert(value))
	}
	return converted
}

// WithArticle returns a noun with its article by its first letter: "an EnvoyFilter".
func WithArticle(noun string) string {
	if noun != "" && strings.ContainsRune("AEIOaeio", rune(noun[0])) { // a UDPRoute
		return "an " + noun
	}
	return "a " + noun
}

// ConnectionError returns a library's error about a connection to an address in plain words, with a flag or an address
// that may help. It is empty for unknown errors.
func ConnectionError(address, text string) string {
	cause, advice := connectionCause(address, text)
	if advice != "" {
		cause += ": " + advice
	}
	return cause
}

// connectionCause returns the cause of an error about a connection, and the advice for the person who typed the
// address.
func connectionCause(address, text string) (cause, advice string) {
	host := address
	if h, _, err := net.SplitHostPort(address); err == nil {
		host = h
	}
	if names := otherName.FindStringSubmatch(text); names != nil {
		return "its certificate is for " + names[1] + ", and not for " + names[2], "give --tls-server-name"
	}
	if strings.Contains(text, "server preface") && strings.Contains(text, "use of closed network connection") {
		return "it accepts connections, but does not answer", "" // grpc-go closed it after a timeout
	}
	for _, pattern := range []struct{ part, cause, advice string }{
		{"connection refused", "nobody listens there", ""},
		{"no such file or directory", "there is no such socket", ""},
		{"no such host", "there is no host " + host, ""},
		{"produced zero addresses", "the name of the host " + host + " has no address, or cannot be resolved now", ""},
		{"server misbehaving", "the name of the host " + host + " cannot be resolved now", ""},
		{"network is unreachable", "its network cannot be reached", ""},
		{"no route to host", "there is no way to the host " + host, ""},
		{"i/o timeout", "no connection came about in time", ""},
		{
			"first record does not look like a TLS handshake", "it does not speak TLS",
			"leave out the flags and variables of TLS",
		},
		{"server gave HTTP response to HTTPS client", "it does not speak TLS", "leave out https://"},
		{"signed by unknown authority", "no trusted authority signed its certificate", "give --tls-ca"},
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
		if strings.Contains(strings.ToLower(text), strings.ToLower(pattern.part)) {
			return pattern.cause, pattern.advice
		}
	}
	return "", ""
}

// otherName matches the error of package x509 about a certificate for other names.
var otherName = regexp.MustCompile(`certificate is valid for (.+), not ([^\s"]+)`)

// KeyPairError returns an error of package tls about a certificate and its key in plain words.
func KeyPairError(err error) error {
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), "tls: ")
	for _, pattern := range []struct{ part, cause string }{
		{"but did find a private key", "the certificate's file has a private key, and no certificate"},
		{"PEM data in certificate input", "there is no certificate in it, or not as PEM"},
		{"found a certificate rather than a key", "the key's file has a certificate, and no private key"},
		{"PEM data in key input", "there is no private key in it, or not as PEM"},
		{"private key does not match", "the private key does not match the certificate: it is that of another one"},
	} {
		if strings.Contains(text, pattern.part) {
			return errors.New(pattern.cause)
		}
	}
	return errors.New(text)
}

// broken matches errors of gRPC about a connection, not those of a server.
var broken = regexp.MustCompile(`connection error: desc = |name resolver error: |transport: |error reading from server: |error ` +
	`reading server preface`)

// StreamError returns gRPC's error about a stream to an address in plain words: the cause of a broken connection, or
// the server's message.
func StreamError(address, text string) string {
	if broken.MatchString(text) {
		if cause, _ := connectionCause(address, text); cause != "" {
			return cause
		}
	}
	return Plain(text)
}

var wrapping = regexp.MustCompile(`rpc error: code = \w+ desc = |connection error: desc = "?|transport: (Error while dialing: ` +
	`|authentication handshake failed: )?`)

// Plain returns gRPC's error without the prefixes of its layers.
func Plain(text string) string {
	return strings.Trim(strings.ReplaceAll(wrapping.ReplaceAllString(text, ""), `\"`, `"`), `" `)
}

// Nearest returns the name that a mistyped text probably stands for, or "": it differs in case or by two letters at
// most.
func Nearest(mistyped string, names []string) string {
	nearest, bestDistance := "", 3
	if len(mistyped) > 64 {
		return ""
	}
	if len(mistyped) < 5 {
		bestDistance = 2
	}
	for _, name := range names {
		if len(name) >= len(mistyped)+bestDistance || len(mistyped) >= len(name)+bestDistance {
			continue
		}
		if distance := EditDistance(strings.ToLower(mistyped), strings.ToLower(name)); distance < bestDistance {
			nearest, bestDistance = name, distance
		}
	}
	return nearest
}

// Suggestion returns the end of a message about an unknown name: the nearest name, or "".
func Suggestion(mistyped string, names []string) string {
	if guess := Nearest(mistyped, names); guess != "" {
		return " (did you mean " + guess + "?)"
	}
	return ""
}

// EditDistance returns the number of letters to insert, delete, replace or swap with the next that turns a into b.
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

// Printable escapes the characters that a terminal obeys instead of showing: control and format characters, such as
// changes of direction, and separators of lines. It keeps the excepted ones.
func Printable(text, excepted string) string {
	if isPlain(text) {
		return text
	}
	obeyed := func(r rune) bool {
		return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && !strings.ContainsRune(excepted, r)
	}
	if !strings.ContainsFunc(text, obeyed) {
		return text
	}
	var builder strings.Builder
	for _, character := range text {
		switch {
		case !obeyed(character):
			builder.WriteRune(character)
		case character > 0xff:
			fmt.Fprintf(&builder, `\u%04x`, character)
		default:
			fmt.Fprintf(&builder, `\x%02x`, character)
		}
	}
	return builder.String()
}
