package translate

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
	istiosecurity "istio.io/istio/pkg/config/security"

	"tributary/server/envoy/model"
)

// knownCiphers returns the ciphers that Envoy supports, without duplicates: it refuses a whole listener with another
// cipher.
func knownCiphers(names []string) []string {
	return slices.DeleteFunc(istiosecurity.FilterCipherSuites(names), func(name string) bool {
		return !istiosecurity.ValidCipherSuites.Contains(name) || name == "DES-CBC3-SHA" // Istio accepts it, Envoy does not
	})
}

// modernTLS has the versions 1.2 and 1.3. Envoy's default for upstreams is 1.2 at most.
func modernTLS() *tlsv3.TlsParameters {
	return &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
	}
}

func inspectTLS() *listenerv3.ListenerFilter {
	return listenerFilter("envoy.filters.listener.tls_inspector",
		&tlsinspectorv3.TlsInspector{InitialReadBufferSize: wrapperspb.UInt32(512)})
}

func transportSocket(config proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: model.ToAny(config)},
	}
}

// downstreamTLS returns the TLS settings of a server, and adds its secrets. domains are the trust domains of the mesh.
func (t *Translation) downstreamTLS(
	tls *networking.ServerTLSSettings, client model.Profile, domains, protocols []string,
) *corev3.TransportSocket {
	common := &tlsv3.CommonTlsContext{
		AlpnProtocols: protocols,
		TlsParams: &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsVersion(tls.GetMinProtocolVersion()),
			TlsMaximumProtocolVersion: tlsVersion(tls.GetMaxProtocolVersion()),
			CipherSuites:              knownCiphers(tls.GetCipherSuites()),
		},
	}
	if proto.Size(common.GetTlsParams()) == 0 {
		common.TlsParams = nil
	}
	if tls.GetMode() == networking.ServerTLSSettings_ISTIO_MUTUAL {
		authenticatePeers(common, client, tls.GetSubjectAltNames(), domains)
		return transportSocket(&tlsv3.DownstreamTlsContext{
			CommonTlsContext:         common,
			RequireClientCertificate: wrapperspb.Bool(true),
		})
	}
	for _, name := range model.Certificates(tls, client.Credentials) {
		t.addSecret(name)
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, sdsConfig(name))
	}
	downstream := &tlsv3.DownstreamTlsContext{
		CommonTlsContext:         common,
		RequireClientCertificate: wrapperspb.Bool(tls.GetMode() == networking.ServerTLSSettings_MUTUAL),
	}
	if model.Verifies(tls) {
		limits := &tlsv3.CertificateValidationContext{
			MatchTypedSubjectAltNames: subjects(tls.GetSubjectAltNames()), VerifyCertificateSpki: tls.GetVerifyCertificateSpki(),
			VerifyCertificateHash: tls.GetVerifyCertificateHash(),
		}
		t.verify(common, model.Authority(tls, client.Credentials), limits)
	}
	return transportSocket(downstream)
}

// verify sets the verification of certificates to a secret and limits, and adds the secret.
func (t *Translation) verify(common *tlsv3.CommonTlsContext, root string, limits *tlsv3.CertificateValidationContext) {
	t.addSecret(root)
	verify(common, sdsConfig(root), limits)
}

func verify(common *tlsv3.CommonTlsContext, root *tlsv3.SdsSecretConfig, limits *tlsv3.CertificateValidationContext) {
	combined := &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
		DefaultValidationContext: limits, ValidationContextSdsSecretConfig: root,
	}
	common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: combined}
}

// addSecret adds a secret by its name.
func (t *Translation) addSecret(name string) {
	if !slices.Contains(t.Secrets, name) {
		t.Secrets = append(t.Secrets, name)
	}
}

// subjects returns alternative matchers of a certificate's names. As in Istio, a name may begin or end with an
// asterisk.
func subjects(names []string) (matchers []*tlsv3.SubjectAltNameMatcher) {
	for _, name := range names {
		stringMatcher := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}
		if prefix, ok := strings.CutSuffix(name, "*"); ok && prefix != "" {
			stringMatcher.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: prefix}
		} else if suffix, ok := strings.CutPrefix(name, "*"); ok && suffix != "" {
			stringMatcher.MatchPattern = &matcherv3.StringMatcher_Suffix{Suffix: suffix}
		}
		kinds := []tlsv3.SubjectAltNameMatcher_SanType{
			tlsv3.SubjectAltNameMatcher_DNS, tlsv3.SubjectAltNameMatcher_URI,
			tlsv3.SubjectAltNameMatcher_IP_ADDRESS,
		}
		if strings.HasPrefix(name, spiffeScheme) {
			kinds = kinds[1:2]
		}
		for _, kind := range kinds {
			matchers = append(matchers, &tlsv3.SubjectAltNameMatcher{SanType: kind, Matcher: stringMatcher})
		}
	}
	return matchers
}

// tlsVersion converts a version of TLS. TLS_AUTO is Envoy's default: 1.2 at least, for servers.
func tlsVersion(v networking.ServerTLSSettings_TLSProtocol) tlsv3.TlsParameters_TlsProtocol {
	return tlsv3.TlsParameters_TlsProtocol(v) // the numbers are the same
}
