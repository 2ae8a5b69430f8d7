// Package spiffe has certificates, and whom to trust, come from a SPIFFE Workload API in place of files: a name that begins with spiffe://
// stands for what it says. See https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE_Workload_API.md.
package spiffe

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

// Scheme begins what is not the name of a file. Alone it is the first identity that the Workload API gives us, or all trust domains that it
// knows; spiffe://TRUST-DOMAIN/PATH is one identity, and spiffe://TRUST-DOMAIN one trust domain.
const Scheme = "spiffe://"

// Named reports whether a name is for the Workload API.
func Named(name string) bool { return strings.HasPrefix(name, Scheme) }

// CheckCertificate says what is wrong with the name of a certificate of ours.
func CheckCertificate(name string) error {
	if name == Scheme {
		return nil
	}
	id, err := spiffeid.FromString(name)
	switch {
	case err != nil:
		return fmt.Errorf("%q: %w; write %s for the first that the Workload API gives, or a SPIFFE ID", name, err, Scheme)
	case id.Path() == "":
		return fmt.Errorf("%q is a trust domain; write %s for the first certificate that the Workload API gives, or a SPIFFE ID with a path",
			name, Scheme)
	}
	return nil
}

// CheckTrust says what is wrong with the name of those who are trusted.
func CheckTrust(name string) error {
	if name == Scheme {
		return nil
	}
	id, err := spiffeid.FromString(name)
	switch {
	case err != nil:
		return fmt.Errorf("%q: %w; write %s for all trust domains that the Workload API knows, or %sTRUST-DOMAIN", name, err, Scheme, Scheme)
	case id.Path() != "":
		return fmt.Errorf("%q is an identity; a trust domain is %s%s", name, Scheme, id.TrustDomain())
	}
	return nil
}

// CheckAddress says what is wrong with the address of a Workload API; the empty one is that of the environment.
func CheckAddress(address string) error {
	if address == "" {
		return nil
	}
	err := workloadapi.ValidateAddress(address)
	if rest, unix := strings.CutPrefix(address, "unix:"); err == nil && unix && !strings.HasPrefix(strings.TrimPrefix(rest, "//"), "/") {
		err = errors.New("the path has to begin with a slash")
	}
	if err != nil {
		return fmt.Errorf("want unix:///PATH or tcp://IP:PORT, got %q: %w", address, err)
	}
	return nil
}

// addressOf returns where the Workload API is.
func addressOf(address string) (string, error) {
	if address == "" {
		address = os.Getenv(workloadapi.SocketEnv)
	}
	if address == "" {
		return "", fmt.Errorf("there is no workloadAPI, and $%s is not set", workloadapi.SocketEnv)
	}
	return address, CheckAddress(address)
}

// Said is what a Workload API said. It is not modified once it was made.
type Said struct {
	svids   []*x509svid.SVID
	bundles *x509bundle.Set
}

// Certificate returns our certificate of that name, with its key.
func (s *Said) Certificate(name string) (*tls.Certificate, error) {
	for _, svid := range s.svids {
		if name != Scheme && svid.ID.String() != name {
			continue
		}
		c := &tls.Certificate{PrivateKey: svid.PrivateKey, Leaf: svid.Certificates[0]}
		for _, one := range svid.Certificates {
			c.Certificate = append(c.Certificate, one.Raw)
		}
		return c, nil
	}
	given := make([]string, 0, len(s.svids))
	for _, svid := range s.svids {
		given = append(given, svid.ID.String())
	}
	return nil, fmt.Errorf("the Workload API does not give this process %s; it gives %s", name, strings.Join(given, ", "))
}

// Authorities are the certificates of those who sign for the trust domains of that name: for others to be told whom we trust. Verify is who
// decides.
func (s *Said) Authorities(trust string) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, b := range s.bundles.Bundles() {
		if trusted(trust, b.TrustDomain()) {
			for _, one := range b.X509Authorities() {
				pool.AddCert(one)
			}
		}
	}
	return pool
}

func trusted(trust string, domain spiffeid.TrustDomain) bool {
	return trust == Scheme || domain.IDString() == trust
}

// Verify returns an error unless the certificate at the head of chain is a SPIFFE ID of one of the trust domains of that name, signed by an
// authority of that very domain: who signs for one trust domain speaks for no other.
func (s *Said) Verify(trust string, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("there is no certificate")
	}
	id, _, err := x509svid.Verify(chain, s.bundles)
	if err != nil {
		return err
	}
	if !trusted(trust, id.TrustDomain()) {
		return fmt.Errorf("%s is not of the trust domain %s", id, trust)
	}
	return nil
}

// SameTrust reports whether o trusts the same.
func (s *Said) SameTrust(o *Said) bool {
	if s == nil || o == nil {
		return s == o
	}
	all := s.bundles.Bundles()
	for _, b := range all {
		if other, ok := o.bundles.Get(b.TrustDomain()); !ok || !b.Equal(other) {
			return false
		}
	}
	return len(all) == o.bundles.Len()
}

// Equal reports whether o says the same.
func (s *Said) Equal(o *Said) bool {
	if s == nil || o == nil || s == o {
		return s == o
	}
	if len(s.svids) != len(o.svids) {
		return false
	}
	for i, svid := range s.svids {
		if svid.ID != o.svids[i].ID || !svid.Certificates[0].Equal(o.svids[i].Certificates[0]) {
			return false
		}
	}
	return s.SameTrust(o)
}
