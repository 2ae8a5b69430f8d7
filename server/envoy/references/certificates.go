package references

import (
	"fmt"
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// certificates finds Gateways of the same workloads that share a certificate: a browser that reuses a connection
// gets 404 from the other one.
func certificates(m *model) {
	first := make(map[string]resource.Key)
	for _, key := range slices.SortedFunc(maps.Keys(m.gateways), resource.Key.Compare) {
		gateway := m.gateways[key]
		reported := make(map[resource.Key]bool)
		for i, server := range gateway.spec.GetServers() {
			name := certificateName(server.GetTls())
			if name == "" {
				continue
			}
			claim := fmt.Sprint(gateway.spec.GetSelector(), name)
			earlier, taken := first[claim]
			if !taken {
				first[claim] = gateway.key
			} else if earlier != gateway.key && !reported[earlier] {
				reported[earlier] = true
				m.find(gateway.key, Warning, SameCertificate, "spec.servers[%d].tls: %s has the certificate %s for the same "+
					"workloads: clients that reuse an HTTP/2 connection get 404; put the servers into one Gateway, or use two "+
					"certificates", i, earlier, name)
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
