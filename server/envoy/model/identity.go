package model

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"
)

// An Envoy with an identity has a certificate of the mesh, its key, and the roots to verify peers. They stay on its
// machine.

// MetadataIdentity is tributary's key of node metadata for the source of the identity: IdentitySPIRE or a directory.
const MetadataIdentity = "IDENTITY"

// Identities from SPIRE.
const (
	IdentitySPIRE = "spire"       // the identity of Envoys that ask SPIRE's agent
	SPIRECluster  = "spire_agent" // leads to that agent; it is in the bootstrap
)

// IsDirectory reports whether an identity is a directory.
func IsDirectory(identity string) bool { return strings.HasPrefix(identity, "/") }

// identityOf returns the identity of a node, or "" if it names no supported one.
func identityOf(fields map[string]*structpb.Value) string {
	identity := strings.TrimRight(fields[MetadataIdentity].GetStringValue(), "/")
	if identity == IdentitySPIRE || IsDirectory(identity) {
		return identity
	}
	return ""
}

// IdentitySecrets returns the names of the secrets of an identity in a directory: its certificate and key, and its
// roots. The files have the names that Istio's agent gives them. Envoy reads them again after a rename in the
// directory, such as of the symbolic link that replaces all files at once.
func IdentitySecrets(directory string) (certificate, roots string) {
	return CertificateName(directory+"/cert-chain.pem", directory+"/key.pem"), RootName(directory+"/root-cert.pem", "")
}

// IsMutual reports whether a policy requires mutual TLS with certificates of the mesh.
func IsMutual(tls *networking.ClientTLSSettings) bool {
	return tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL
}

// Mutual describes the mutual TLS of clients with the endpoints of a service. It is immutable.
type Mutual struct {
	// Auto: without TLS settings in a policy, clients use mutual TLS with the endpoints that accept it.
	Auto    bool
	Accepts func(e *Endpoint, port uint32) bool // false if a PeerAuthentication restricts an endpoint to plaintext
	From    string                              // equal for equal content
}

// tlsModeLabel is the label of workloads that says whether their Envoy accepts mutual TLS.
const tlsModeLabel = "security.istio.io/tlsMode"

// IsMutual reports whether an endpoint accepts mutual TLS, by its label or because it has a service account.
func (e *Endpoint) IsMutual() bool {
	if mode, ok := e.Labels[tlsModeLabel]; ok {
		return mode == "istio"
	}
	return e.Spec.GetServiceAccount() != ""
}

// DefaultTrustDomain is the trust domain of a mesh that sets none. In principals it stands for that of the mesh.
const DefaultTrustDomain = "cluster.local"

// TrustDomains returns the trust domain of the mesh, and its aliases.
func (c *MeshConfig) TrustDomains() []string {
	domains := []string{DefaultTrustDomain}
	if domain := c.Spec.GetTrustDomain(); domain != "" {
		domains[0] = domain
	}
	for _, alias := range c.Spec.GetTrustDomainAliases() {
		if alias != "" && !slices.Contains(domains, alias) {
			domains = append(domains, alias)
		}
	}
	return domains
}

// AutoMutual reports whether clients use mutual TLS by default.
func (c *MeshConfig) AutoMutual() bool {
	return c.Spec.GetEnableAutoMtls() == nil || c.Spec.GetEnableAutoMtls().GetValue()
}
