package client

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"

	"tributary/adsc"
	"tributary/internal/spiffe"
)

// secure is what the templates are told of TLS.
type secure struct {
	Name, NameType       string   // that the server's certificate must have, and what it is to Envoy
	CA, Certificate, Key string   // files
	CAText               string   // what is in CA
	Names                []string // of which the server's certificate must have one, in place of Name
}

// secure returns what the template of a client is told of TLS, of a server on host; nil for plaintext.
func (o *Bootstrap) secure(client, host string) (*secure, error) {
	if o.TLS == nil || !o.TLS.Secure() {
		return nil, nil
	}
	if err := o.TLS.Check(); err != nil {
		return nil, err
	}
	s := &secure{
		Name: cmp.Or(o.TLS.SNI, host), NameType: "DNS",
		CA: o.TLS.CACertificates, Certificate: o.TLS.ClientCertificate, Key: o.TLS.PrivateKey, Names: o.TLS.SubjectAltNames,
	}
	if net.ParseIP(s.Name) != nil {
		s.NameType = "IP_ADDRESS"
	}
	switch {
	case s.CA == "":
		return nil, errors.New("the file with the certificates to trust is needed (--tls-ca): what a client trusts otherwise is not known here")
	case client == "tributary":
		return s, nil
	case spiffe.Named(s.CA) || spiffe.Named(s.Certificate):
		return nil, fmt.Errorf("spiffe:// is for clients that ask a SPIFFE Workload API, as tributary does: name files for %s, such as "+
			"spiffe-helper writes them", client)
	case len(s.Names) > 0 && client == "envoy":
		s.Name, s.NameType = s.Names[0], "URI"
		return s, nil
	case len(s.Names) > 0:
		return nil, fmt.Errorf("%s knows a server by the name of its host, not by %s", client, s.Names[0])
	case client != "istiod":
		return s, nil
	case o.TLS.Mode == adsc.TLSMutual:
		return nil, errors.New("istiod shows no certificate to its config sources, whatever its configuration says")
	}
	text, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, fmt.Errorf("whom to trust: %w", err)
	}
	s.CAText = string(text)
	return s, nil
}

// GRPC is the configuration of the channel credentials named tls (gRFC A65).
func (s *secure) GRPC() map[string]any {
	all := map[string]any{"ca_certificate_file": s.CA}
	if s.Certificate != "" {
		all["certificate_file"], all["private_key_file"] = s.Certificate, s.Key
	}
	return all
}

// Tributary is the tlsSettings of a source.
func (s *secure) Tributary() map[string]any {
	all := map[string]any{"mode": adsc.TLSSimple, "caCertificates": s.CA}
	if len(s.Names) > 0 {
		all["subjectAltNames"] = s.Names
	} else {
		all["sni"] = s.Name
	}
	if s.Certificate != "" {
		all["mode"], all["clientCertificate"] = adsc.TLSMutual, s.Certificate
	}
	if s.Key != "" {
		all["privateKey"] = s.Key
	}
	return all
}
