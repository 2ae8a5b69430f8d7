package references

import (
	"fmt"
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// certificates finds Gateways of the same workloads that share a certificate: a browser that reuses a connection
// gets 404 from the other one, or 421 if they are derived from listeners, and then makes a new connection.
func certificates(mesh *model) {
	first := make(claims)
	for _, key := range slices.SortedFunc(maps.Keys(mesh.gateways), resource.Key.Compare) {
		gateway := mesh.gateways[key]
		reported := make(map[resource.Key]bool)
		for i, server := range gateway.spec.GetServers() {
			name := certificateName(server.GetTls())
			if name == "" || gateway.derived {
				continue
			}
			if earlier := first.take(name, gateway); earlier != gateway.key && !reported[earlier] {
				reported[earlier] = true
				mesh.find(gateway.key, Warning, SameCertificate, "spec.servers[%d].tls: %s has the certificate %s for the same "+
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

// authorities finds rules for TLS without an authority that verifies servers: the rule, and the settings of each port.
func authorities(mesh *model) {
	for _, rule := range mesh.rules {
		policy := rule.spec.GetTrafficPolicy()
		mesh.checkAuthority(rule.key, NoAuthority, "spec.trafficPolicy.tls", policy.GetTls())
		for i, settings := range policy.GetPortLevelSettings() {
			path := fmt.Sprintf("spec.trafficPolicy.portLevelSettings[%d].tls", i)
			mesh.checkAuthority(rule.key, NoPortAuthority, path, settings.GetTls())
		}
	}
}

func (m *model) checkAuthority(rule resource.Key, code, path string, tls *networking.ClientTLSSettings) {
	mode := tls.GetMode()
	verifies := tls.GetCaCertificates()+tls.GetCaCertCredentialName()+tls.GetCredentialName() != ""
	if mode != networking.ClientTLSSettings_SIMPLE && mode != networking.ClientTLSSettings_MUTUAL || verifies {
		return
	}
	if tls.GetInsecureSkipVerify().GetValue() {
		m.find(rule, Warning, code, "%s: insecureSkipVerify accepts every server: set caCertificates instead", path)
		return
	}
	m.find(rule, Note, code, "%s: without caCertificates, Envoys verify servers by the authorities of the system, and "+
		"those of an istiod with VERIFY_CERTIFICATE_AT_CLIENT=false do not verify them", path)
}
