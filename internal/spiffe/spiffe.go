// Package spiffe reads certificates and trusted authorities from a SPIFFE Workload API in place of files, for names
// that begin with spiffe://. See https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE_Workload_API.md.
package spiffe

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

// Scheme begins the names that are not files. Alone it stands for the first identity of this process, or for all known
// trust domains; spiffe://TRUST-DOMAIN/PATH is an identity, and spiffe://TRUST-DOMAIN a trust domain.
const Scheme = "spiffe://"

// Named reports whether a name is for the Workload API.
func Named(name string) bool { return strings.HasPrefix(name, Scheme) }

// CheckCertificate returns an error for an invalid name of a certificate of this process.
func CheckCertificate(name string) error {
	const forms = "write " + Scheme + " for the first that the Workload API gives, or a SPIFFE ID with a path"
	id, err := parse(name, forms)
	if err == nil && id.Path() == "" && name != Scheme {
		err = fmt.Errorf("%q is a trust domain; %s", name, forms)
	}
	return err
}

// CheckTrust returns an error for an invalid name of trusted authorities.
func CheckTrust(name string) error {
	id, err := parse(name, "write "+Scheme+" for all trust domains that the Workload API knows, or "+Scheme+"TRUST-DOMAIN")
	if err == nil && id.Path() != "" {
		err = fmt.Errorf("%q is an identity; a trust domain is %s%s", name, Scheme, id.TrustDomain())
	}
	return err
}

// parse decodes a name; Scheme is the zero ID.
func parse(name, forms string) (id spiffeid.ID, err error) {
	if name == Scheme {
		return id, nil
	}
	if id, err = spiffeid.FromString(name); err != nil {
		err = fmt.Errorf("%q: %w; %s", name, err, forms)
	}
	return id, err
}

// CheckAddress returns an error for an invalid address of a Workload API. The empty address is valid: the environment
// has it.
func CheckAddress(address string) error {
	if address == "" {
		return nil
	}
	err := workloadapi.ValidateAddress(address)
	path, unix := strings.CutPrefix(address, "unix:")
	if err == nil && unix && !strings.HasPrefix(strings.TrimPrefix(path, "//"), "/") {
		err = errors.New("the path has to begin with a slash")
	}
	if err != nil {
		return fmt.Errorf("want unix:///PATH or tcp://IP:PORT, got %q: %w", address, err)
	}
	return nil
}

// Credentials are the identities and trusted authorities of this process. They are not modified.
type Credentials workloadapi.X509Context

// Certificate returns the certificate of an identity, with its key.
func (c *Credentials) Certificate(name string) (*tls.Certificate, error) {
	identities := make([]string, 0, len(c.SVIDs))
	for _, svid := range c.SVIDs {
		if identities = append(identities, svid.ID.String()); name != Scheme && name != svid.ID.String() {
			continue
		}
		certificate := &tls.Certificate{PrivateKey: svid.PrivateKey, Leaf: svid.Certificates[0]}
		for _, link := range svid.Certificates {
			certificate.Certificate = append(certificate.Certificate, link.Raw)
		}
		return certificate, nil
	}
	return nil, fmt.Errorf("the Workload API does not give this process %s; it gives %s", name,
		strings.Join(identities, ", "))
}

// Authorities returns the authorities of a name of trust domains, which a server names to its clients. Verify decides.
func (c *Credentials) Authorities(trust string) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, bundle := range c.Bundles.Bundles() {
		if includes(trust, bundle.TrustDomain()) {
			for _, authority := range bundle.X509Authorities() {
				pool.AddCert(authority)
			}
		}
	}
	return pool
}

func includes(trust string, domain spiffeid.TrustDomain) bool {
	return trust == Scheme || domain.IDString() == trust
}

// Verify returns an error unless the first certificate of the chain has a SPIFFE ID of one of the trust domains, signed
// by an authority of the same trust domain. An authority of one trust domain cannot sign for another.
func (c *Credentials) Verify(trust string, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("there is no certificate")
	}
	id, _, err := x509svid.Verify(chain, c.Bundles)
	if err != nil {
		return err
	}
	if !includes(trust, id.TrustDomain()) {
		return fmt.Errorf("%s is not of the trust domain %s", id, trust)
	}
	return nil
}

// SameTrust reports whether both have the same trusted authorities.
func (c *Credentials) SameTrust(second *Credentials) bool {
	if c == nil || second == nil {
		return c == second
	}
	return slices.EqualFunc(c.Bundles.Bundles(), second.Bundles.Bundles(), (*x509bundle.Bundle).Equal)
}

// Equal reports whether both have the same identities and trusted authorities.
func (c *Credentials) Equal(second *Credentials) bool {
	if c == nil || second == nil {
		return c == second
	}
	return c.SameTrust(second) && slices.EqualFunc(c.SVIDs, second.SVIDs, func(a, b *x509svid.SVID) bool {
		return a.ID == b.ID && a.Certificates[0].Equal(b.Certificates[0])
	})
}
