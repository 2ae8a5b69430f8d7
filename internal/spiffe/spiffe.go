// Package spiffe reads certificates and trusted authorities from a SPIFFE Workload API in place of files, for names
// that begin with spiffe://. See https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE_Workload_API.md.
package spiffe

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
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
	if name == Scheme {
		return nil
	}
	id, err := spiffeid.FromString(name)
	if err != nil {
		return fmt.Errorf("%q: %w; write %s for the first that the Workload API gives, or a SPIFFE ID", name, err, Scheme)
	}
	if id.Path() == "" {
		return fmt.Errorf("%q is a trust domain; write %s for the first certificate that the Workload API gives, or a "+
			"SPIFFE ID with a path", name, Scheme)
	}
	return nil
}

// CheckTrust returns an error for an invalid name of trusted authorities.
func CheckTrust(name string) error {
	if name == Scheme {
		return nil
	}
	id, err := spiffeid.FromString(name)
	if err != nil {
		return fmt.Errorf("%q: %w; write %s for all trust domains that the Workload API knows, or %sTRUST-DOMAIN", name, err,
			Scheme, Scheme)
	}
	if id.Path() != "" {
		return fmt.Errorf("%q is an identity; a trust domain is %s%s", name, Scheme, id.TrustDomain())
	}
	return nil
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
type Credentials struct {
	svids   []*x509svid.SVID
	bundles *x509bundle.Set
}

// Certificate returns the certificate of an identity, with its key.
func (c *Credentials) Certificate(name string) (*tls.Certificate, error) {
	identities := make([]string, 0, len(c.svids))
	for _, svid := range c.svids {
		identity := svid.ID.String()
		if name != Scheme && name != identity {
			identities = append(identities, identity)
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
	for _, bundle := range c.bundles.Bundles() {
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
	id, _, err := x509svid.Verify(chain, c.bundles)
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
	bundles := c.bundles.Bundles()
	for _, bundle := range bundles {
		if counterpart, ok := second.bundles.Get(bundle.TrustDomain()); !ok || !bundle.Equal(counterpart) {
			return false
		}
	}
	return len(bundles) == second.bundles.Len()
}

// Equal reports whether both have the same identities and trusted authorities.
func (c *Credentials) Equal(second *Credentials) bool {
	if c == nil || second == nil || len(c.svids) != len(second.svids) {
		return c == second
	}
	for i, svid := range c.svids {
		if counterpart := second.svids[i]; svid.ID != counterpart.ID ||
			!svid.Certificates[0].Equal(counterpart.Certificates[0]) {
			return false
		}
	}
	return c.SameTrust(second)
}
