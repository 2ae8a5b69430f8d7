package check

import (
	"fmt"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// certificates finds Gateways of the same workloads that share a certificate: a browser that reuses a connection gets 404 from the other one.
func certificates(m *model) {
	first := make(map[string]resource.Key)
	for _, gateway := range m.gateways {
		reported := make(map[resource.Key]bool)
		for i, server := range gateway.spec.GetServers() {
			name := certificateName(server.GetTls())
			if name == "" {
				continue
			}
			claim := fmt.Sprint(gateway.spec.GetSelector(), name)
			other, taken := first[claim]
			if !taken {
				first[claim] = gateway.key
			} else if other != gateway.key && !reported[other] {
				reported[other] = true
				m.find(gateway.key, Warning, SameCertificate, "spec.servers[%d].tls: %s has the certificate %s for the same workloads: clients that "+
					"reuse an HTTP/2 connection get 404; put the servers into one Gateway, or use two certificates", i, other, name)
			}
		}
	}
}

// certificateName names the certificate of a server, by its credential or its files; it is empty if there is none.
func certificateName(tls *networking.ServerTLSSettings) string {
	if tls.GetCredentialName() != "" || tls.GetServerCertificate() == "" || tls.GetPrivateKey() == "" {
		return tls.GetCredentialName()
	}
	return tls.GetServerCertificate() + " with the key " + tls.GetPrivateKey()
}
