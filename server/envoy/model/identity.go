package model

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"
)

// An Envoy with an identity has a certificate of the mesh, its key, and the certificates to verify others by. They stay on its machine.

// MetadataIdentity is a key of node metadata, ours: where the identity comes from, which is IdentitySPIRE or a directory.
const MetadataIdentity = "IDENTITY"

// Identities from SPIRE.
const (
	IdentitySPIRE = "spire"       // the identity of Envoys that ask SPIRE's agent
	SPIRECluster  = "spire_agent" // leads to that agent; it is in the bootstrap
)

// IsDirectory says whether an identity is a directory.
func IsDirectory(identity string) bool { return strings.HasPrefix(identity, "/") }

// identityOf returns the identity of a node, or nothing if it names none that exists.
func identityOf(fields map[string]*structpb.Value) string {
	if said := strings.TrimRight(fields[MetadataIdentity].GetStringValue(), "/"); said == IdentitySPIRE || IsDirectory(said) {
		return said
	}
	return ""
}

// IdentitySecrets returns the names of the secrets of an identity that is a directory: its certificate and key, and its roots. The files
// have the names that Istio's agent gives them. Envoy reads them again when something is renamed in the directory, such as the symbolic
// link by which all are replaced.
func IdentitySecrets(directory string) (certificate, roots string) {
	return CertificateName(directory+"/cert-chain.pem", directory+"/key.pem"), RootName(directory+"/root-cert.pem", "")
}

// IsMutual says whether a policy requires mutual TLS with certificates of the mesh.
func IsMutual(tls *networking.ClientTLSSettings) bool {
	return tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL
}

// Mutual is how clients with an identity authenticate the endpoints of a service. It is not modified once it was made.
type Mutual struct {
	Auto    bool                                // if no policy of the client has TLS settings, endpoints are authenticated that can be
	Accepts func(e *Endpoint, port uint32) bool // unless a PeerAuthentication has an endpoint accept plaintext only
	From    string                              // what it was made of: equal for what is equal
}

// tlsModeLabel is the label of workloads whose Envoy accepts mutual TLS, or does not.
const tlsModeLabel = "security.istio.io/tlsMode"

// IsMutual says whether an endpoint accepts mutual TLS, by its label or because it has a service account.
func (e *Endpoint) IsMutual() bool {
	if mode, is := e.Labels[tlsModeLabel]; is {
		return mode == "istio"
	}
	return e.Spec.GetServiceAccount() != ""
}

// DefaultTrustDomain is that of a mesh without one of its own. In principals it stands for that of the mesh.
const DefaultTrustDomain = "cluster.local"

// TrustDomains returns the trust domain of the mesh, and its aliases.
func (c *MeshConfig) TrustDomains() []string {
	domains := []string{DefaultTrustDomain}
	if own := c.Spec.GetTrustDomain(); own != "" {
		domains[0] = own
	}
	for _, alias := range c.Spec.GetTrustDomainAliases() {
		if alias != "" && !slices.Contains(domains, alias) {
			domains = append(domains, alias)
		}
	}
	return domains
}

// AutoMutual says whether clients use mutual TLS where nothing else is set.
func (c *MeshConfig) AutoMutual() bool {
	return c.Spec.GetEnableAutoMtls() == nil || c.Spec.GetEnableAutoMtls().GetValue()
}
