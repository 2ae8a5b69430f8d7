// Package identity finds out who a client is, by what it can prove: a certificate that was verified, a bearer token of ours, a JWT of
// somebody whom we trust, and where its connection comes from. What it says of itself, as in an xDS node, is no part of that.
package identity

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"tributary/internal/secret"
)

// Identity is who a client is. What it did not prove is empty. It is not modified once it was made.
type Identity struct {
	Address netip.Addr // invalid for one that comes in by a unix socket
	Socket  bool       // it does
	Secure  bool       // the connection is one of TLS

	// Of the certificate.
	URIs    []string // such as a SPIFFE ID
	DNS     []string // in lower case
	Subject string   // as RFC 4514 writes it; empty if there is none

	Token string // the name of its token
	JWT   *JWT

	Expires time.Time // when one of the proofs does; zero for never

	bearer secret.Text         // what Token or JWT was read of
	chain  []*x509.Certificate // of the certificate, which comes first
}

// JWT is what there is in a JSON Web Token.
type JWT struct {
	Issuer, Subject string
	Audience        []string
}

// Trusted returns an error if the client has shown a certificate that trust does not trust, or that has expired: a connection may be older
// than what is trusted now. If trust is nil, the chain is not checked again.
func (i *Identity) Trusted(trust func(chain []*x509.Certificate) error) error {
	if len(i.chain) == 0 {
		return nil
	}
	if !time.Now().Before(i.Expires) {
		return ErrExpired
	}
	if trust == nil {
		return nil
	}
	return trust(i.chain)
}

// ErrExpired refuses a proof that held once.
var ErrExpired = errors.New("the certificate or token has expired")

// Proven says whether the client has shown a certificate or a token.
func (i *Identity) Proven() bool { return len(i.chain) > 0 || i.Token != "" || i.JWT != nil }

// Local says whether the connection does not leave this machine.
func (i *Identity) Local() bool { return i.Socket || i.Address.IsLoopback() }

// String is for a line of the log: all that was proven, and nothing that is secret.
func (i *Identity) String() string {
	var all []string
	all = append(all, i.URIs...)
	for _, name := range i.DNS {
		all = append(all, "dns:"+name)
	}
	if len(all) == 0 && i.Subject != "" {
		all = append(all, "subject:"+i.Subject)
	}
	if i.Token != "" {
		all = append(all, "token:"+i.Token)
	}
	if i.JWT != nil {
		all = append(all, "jwt:"+i.JWT.Issuer+"|"+i.JWT.Subject)
	}
	if len(all) == 0 {
		return "a client without certificate or token"
	}
	return strings.Join(all, " ")
}

// Of returns who a client is as far as its connection tells: its address and, if state is not nil, its certificate, which counts only if it
// was verified.
func Of(addr net.Addr, state *tls.ConnectionState) *Identity {
	i := &Identity{Address: addressOf(addr), Socket: addr != nil && addr.Network() == "unix"}
	if state == nil {
		return i
	}
	i.Secure = true
	if len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return i
	}
	leaf := state.PeerCertificates[0]
	i.chain = state.PeerCertificates
	for _, u := range leaf.URIs {
		i.URIs = append(i.URIs, u.String())
	}
	for _, name := range leaf.DNSNames {
		i.DNS = append(i.DNS, strings.ToLower(name))
	}
	i.Subject = subjectOf(leaf)
	i.Expires = lasts(state.VerifiedChains)
	return i
}

// subjectOf returns the subject of a certificate with all names in their order, which pkix.Name loses. A * is escaped: in patterns it
// stands for others.
func subjectOf(leaf *x509.Certificate) string {
	var names pkix.RDNSequence
	if rest, err := asn1.Unmarshal(leaf.RawSubject, &names); err != nil || len(rest) > 0 {
		return ""
	}
	return strings.ReplaceAll(names.String(), "*", `\2a`)
}

// lasts returns until when one of the chains holds, each of which ends with the first of its certificates: authorities expire, too.
func lasts(chains [][]*x509.Certificate) (until time.Time) {
	for _, chain := range chains {
		first := chain[0].NotAfter
		for _, one := range chain[1:] {
			if one.NotAfter.Before(first) {
				first = one.NotAfter
			}
		}
		if first.After(until) {
			until = first
		}
	}
	return until
}

// addressOf returns the IP address of a peer; it is not valid for a unix socket. An IPv4 address is one also if it came to a socket of
// IPv6.
func addressOf(addr net.Addr) netip.Addr {
	if addr == nil || addr.Network() == "unix" { // which its owner calls as he likes, also like an IP address
		return netip.Addr{}
	}
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}
