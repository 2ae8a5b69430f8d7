// Package identity determines a client's identity from its proofs: a verified certificate, a bearer token, a JWT of a
// trusted issuer, and the address of the connection. Claims without a proof, such as the xDS node, are not part of it.
package identity

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Identity holds the proven properties of a client. Fields without a proof are empty. It is not modified.
type Identity struct {
	Address netip.Addr // invalid on a unix socket
	Socket  bool       // the connection uses a unix socket
	Secure  bool       // the connection uses TLS

	// Of the certificate.
	URIs    []string // such as a SPIFFE ID
	DNS     []string // in lower case
	Subject string   // in the format of RFC 4514

	Token string // name of the token
	JWT   *JWT

	Expires time.Time // the first expiry of the proofs; zero for never

	chain []*x509.Certificate // verified; the client's certificate comes first
}

// JWT holds the claims of a verified JSON Web Token.
type JWT struct {
	Issuer, Subject string
	Audience        []string
}

// ErrExpired rejects proofs after their expiry.
var ErrExpired = errors.New("the certificate or token has expired")

// Verify returns an error after the expiry of the proofs, or if trust rejects the client's certificate: the authorities
// may have changed since the handshake. A nil trust accepts each certificate.
func (i *Identity) Verify(trust func(chain []*x509.Certificate) error) error {
	if !i.Expires.IsZero() && !time.Now().Before(i.Expires) {
		return ErrExpired
	}
	if len(i.chain) == 0 || trust == nil {
		return nil
	}
	return trust(i.chain)
}

// IsAuthenticated reports whether the client has a certificate or a token.
func (i *Identity) IsAuthenticated() bool { return len(i.chain) > 0 || i.Token != "" || i.JWT != nil }

// IsLocal reports whether the connection stays on this machine.
func (i *Identity) IsLocal() bool { return i.Socket || i.Address.IsLoopback() }

// String formats the proofs for logs. It contains no secrets.
func (i *Identity) String() string {
	proofs := append([]string(nil), i.URIs...)
	for _, name := range i.DNS {
		proofs = append(proofs, "dns:"+name)
	}
	if len(proofs) == 0 && i.Subject != "" {
		proofs = append(proofs, "subject:"+i.Subject)
	}
	if i.Token != "" {
		proofs = append(proofs, "token:"+i.Token)
	}
	if i.JWT != nil {
		proofs = append(proofs, "jwt:"+i.JWT.Issuer+"|"+i.JWT.Subject)
	}
	if len(proofs) == 0 {
		return "a client without certificate or token"
	}
	return strings.Join(proofs, " ")
}

// FromConnection returns the identity that a connection proves. state is nil without TLS. Only a verified certificate
// counts.
func FromConnection(remote net.Addr, state *tls.ConnectionState) *Identity {
	client := &Identity{}
	if remote != nil {
		if client.Socket = remote.Network() == "unix"; !client.Socket { // the client chooses the name of its socket
			address, _ := netip.ParseAddrPort(remote.String()) // the zero value has no address
			client.Address = address.Addr().Unmap().WithZone("")
		}
	}
	if state == nil {
		return client
	}
	client.Secure = true
	if len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return client
	}
	client.chain = state.PeerCertificates
	certificate := client.chain[0]
	for _, uri := range certificate.URIs {
		client.URIs = append(client.URIs, uri.String())
	}
	for _, name := range certificate.DNSNames {
		client.DNS = append(client.DNS, strings.ToLower(name))
	}
	client.Subject = formatSubject(certificate)
	client.Expires = expiry(state.VerifiedChains)
	return client
}

// formatSubject returns all names of the subject in their order; pkix.Name loses the order. It escapes a *, which is a
// wildcard in patterns.
func formatSubject(certificate *x509.Certificate) string {
	var names pkix.RDNSequence
	if rest, err := asn1.Unmarshal(certificate.RawSubject, &names); err != nil || len(rest) > 0 {
		return ""
	}
	return strings.ReplaceAll(names.String(), "*", `\2a`)
}

// expiry returns the latest expiry of the chains. A chain expires with the first of its certificates.
func expiry(chains [][]*x509.Certificate) (latest time.Time) {
	for _, chain := range chains {
		first := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		if first.NotAfter.After(latest) {
			latest = first.NotAfter
		}
	}
	return latest
}
