package translate

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// systemRoots are the default certificates to verify servers by.
const systemRoots = "/etc/ssl/certs/ca-certificates.crt"

// CanOriginate reports whether a policy asks for TLS that this package can set up. A credential without a folder has
// neither roots nor a certificate.
func CanOriginate(clientTLSSettings *networking.ClientTLSSettings) bool {
	credential, authority := clientTLSSettings.GetCredentialName(), clientTLSSettings.GetCaCertCredentialName()
	if authority != "" && !model.IsCredential(authority) && !clientTLSSettings.GetInsecureSkipVerify().GetValue() {
		return false
	}
	switch clientTLSSettings.GetMode() {
	case networking.ClientTLSSettings_SIMPLE:
		return credential == "" || model.IsCredential(credential) || clientTLSSettings.GetInsecureSkipVerify().GetValue()
	case networking.ClientTLSSettings_MUTUAL:
		if credential != "" {
			return model.IsCredential(credential)
		}
		return clientTLSSettings.GetClientCertificate() != "" && clientTLSSettings.GetPrivateKey() != ""
	}
	return false
}

// CannotOriginate reports whether a policy asks for TLS with certificates that cannot be set up.
func CannotOriginate(tls *networking.ClientTLSSettings) bool {
	mode := tls.GetMode()
	return (mode == networking.ClientTLSSettings_SIMPLE || mode == networking.ClientTLSSettings_MUTUAL) &&
		!CanOriginate(tls)
}

// upstreamTLS sets up TLS to a cluster of a service by the policy, adds its secrets, and returns the options, which may
// change.
func (t *Translation) upstreamTLS(
	tls *networking.ClientTLSSettings, cluster *clusterv3.Cluster, options *httpv3.HttpProtocolOptions,
	client model.Profile, service *model.Service,
) *httpv3.HttpProtocolOptions {
	if !CanOriginate(tls) {
		return options
	}
	common := &tlsv3.CommonTlsContext{TlsParams: modernTLS()}
	folder, named := model.CredentialFolder(tls.GetCredentialName())
	directory := client.Credentials + "/" + folder
	if tls.GetMode() == networking.ClientTLSSettings_MUTUAL {
		name := model.CertificateName(tls.GetClientCertificate(), tls.GetPrivateKey())
		if named {
			name = model.CertificateName(directory+"/tls.crt", directory+"/tls.key")
		}
		t.addSecret(name)
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{sdsConfig(name)}
	}
	if !tls.GetInsecureSkipVerify().GetValue() {
		roots := model.Root(tls.GetCaCertificates(), tls.GetCaCrl())
		authority, separate := model.CredentialFolder(tls.GetCaCertCredentialName())
		switch {
		case separate:
			roots = model.RootName(client.Credentials+"/"+authority+"/ca.crt", "")
		case named:
			roots = model.RootName(directory+"/ca.crt", "")
		case roots == "":
			roots = model.Root(systemRoots, tls.GetCaCrl())
		}
		names := subjects(subjectsOf(service, tls))
		t.verify(common, roots, &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: names})
	}
	if options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil {
		common.AlpnProtocols = []string{"h2"}
	} else if options.GetUseDownstreamProtocolConfig() != nil {
		common.AlpnProtocols = []string{"h2", "http/1.1"}
	}
	sni := model.ServerName(tls)
	cluster.TransportSocket = transportSocket(&tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: sni})
	if sni != "" {
		return options
	}
	// Requests may come to an HTTPS port, too, by routes from an HTTP port. Their host is the server name, also for
	// verification.
	if options == nil {
		options = http1()
	}
	options.UpstreamHttpProtocolOptions = &corev3.UpstreamHttpProtocolOptions{
		AutoSni:           true,
		AutoSanValidation: !tls.GetInsecureSkipVerify().GetValue() && len(tls.GetSubjectAltNames()) == 0,
	}
	return options
}
