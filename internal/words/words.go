// Package words says to people what is a number, or the text of a library, to a program, and which name they may have meant.
package words

import (
	"errors"
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
