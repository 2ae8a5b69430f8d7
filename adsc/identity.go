package adsc

import (
	"cmp"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
)

// NodeID returns a node ID of the form that istiod requires: type, IP address, name with namespace, and DNS domain.
// istiod compares the namespace of the domain with that of the client's identity. An empty namespace stands for
// default.
func NodeID(name, namespace string) string {
	namespace = cmp.Or(namespace, "default")
	return "sidecar~127.0.0.1~" + name + "." + namespace + "~" + namespace + ".svc.cluster.local"
}

// identityNamespace returns the Kubernetes namespace of the identity that a client presents: that of its certificate,
// else that of the token in a file. It is empty if neither names a namespace. istiod also prefers the certificate.
func identityNamespace(config *tls.Config, tokenFile string) string {
	namespace := ""
	if config != nil && len(config.Certificates) > 0 {
		namespace = certificateNamespace(config.Certificates[0])
	}
	if namespace == "" && tokenFile != "" {
		token, _ := os.ReadFile(tokenFile) // the stream reports the error
		namespace = tokenNamespace(string(token))
	}
	if strings.ContainsAny(namespace, "~.") {
		return "" // these characters separate the parts of a node ID
	}
	return namespace
}

// certificateNamespace returns the namespace of a SPIFFE ID of the form spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT.
func certificateNamespace(certificate tls.Certificate) string {
	for _, uri := range certificate.Leaf.URIs {
		parts := strings.Split(uri.Path, "/")
		if uri.Scheme == "spiffe" && len(parts) == 5 && parts[1] == "ns" && parts[3] == "sa" {
			return parts[2]
		}
	}
	return ""
}

// tokenNamespace returns the namespace of the service account that is the subject of a JWT.
func tokenNamespace(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims struct {
		Subject string `json:"sub"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	account, isAccount := strings.CutPrefix(claims.Subject, "system:serviceaccount:")
	namespace, _, _ := strings.Cut(account, ":")
	if !isAccount {
		return ""
	}
	return namespace
}
