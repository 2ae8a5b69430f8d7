package translate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rawv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// Mutual TLS is that of istiod with PILOT_ENABLE_METADATA_EXCHANGE=false: clients do not offer istio-peer-exchange, the
// protocol for metadata of Istio's proxies, since stock Envoys do not speak it.

// mutualCiphers are the default ciphers of inbound mutual TLS.
var mutualCiphers = strings.Fields(`ECDHE-ECDSA-AES256-GCM-SHA384 ECDHE-RSA-AES256-GCM-SHA384 ECDHE-ECDSA-AES128-GCM-SHA256 ` +
	`ECDHE-RSA-AES128-GCM-SHA256 AES256-GCM-SHA384 AES128-GCM-SHA256`)

// inboundMutual returns the TLS settings of inbound connections that authenticate both sides, or nil for a client
// without an identity. protocols are those of ALPN. Clients must have an identity of a trust domain of the mesh.
func inboundMutual(client model.Profile, secured *model.Security, protocols ...string) *corev3.TransportSocket {
	if client.Identity == "" {
		return nil
	}
	common := &tlsv3.CommonTlsContext{AlpnProtocols: protocols, TlsParams: modernTLS()}
	if secured.TLS.GetMinProtocolVersion() == meshv1alpha1.MeshConfig_TLSConfig_TLSV1_3 {
		common.TlsParams.TlsMinimumProtocolVersion = tlsv3.TlsParameters_TLSv1_3
	}
	common.TlsParams.CipherSuites = knownCiphers(secured.TLS.GetCipherSuites())
	if len(common.GetTlsParams().GetCipherSuites()) == 0 {
		common.TlsParams.CipherSuites = mutualCiphers
	}
	authenticatePeers(common, client, spiffePatterns(secured.Domains), secured.Domains)
	return transportSocket(&tlsv3.DownstreamTlsContext{
		CommonTlsContext:         common,
		RequireClientCertificate: wrapperspb.Bool(true),
	})
}

// authenticatePeers sets the certificate of the client for a connection, and the verification of the peer by the
// client's roots and by names: the peer's certificate must have one of them. Without names, any certificate of the
// roots is accepted, as with istiod.
//
// SPIRE's agent has the roots of its own trust domain under ROOTCA, and under ALL those of all federated trust domains,
// each for its own identities. A mesh with several trust domains uses ALL.
func authenticatePeers(common *tlsv3.CommonTlsContext, client model.Profile, names, domains []string) {
	certificate := spireConfig("default")
	roots := spireConfig("ROOTCA")
	switch {
	case client.Identity != model.IdentitySPIRE:
		certificateName, rootsName := model.IdentitySecrets(client.Identity)
		certificate = sdsConfig(certificateName)
		roots = sdsConfig(rootsName)
	case len(domains) > 1:
		roots.Name = "ALL"
		if len(names) == 0 {
			names = spiffePatterns(domains)
		}
	}
	common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{certificate}
	verify(common, roots, &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: subjects(names)})
}

// spireConfig requests a secret from SPIRE's agent, which supports only state-of-the-world streams of a single type.
func spireConfig(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: model.SPIRECluster},
			}}},
		}},
		ResourceApiVersion: corev3.ApiVersion_V3, InitialFetchTimeout: durationpb.New(0),
	}}
}

const spiffeScheme = "spiffe://"

// spiffePatterns returns patterns of all SPIFFE IDs of trust domains.
func spiffePatterns(domains []string) (names []string) {
	for _, d := range domains {
		names = append(names, spiffeScheme+d+"/*")
	}
	return names
}

// subjectsOf returns the valid names in certificates of a service: those of a policy, else those of its ServiceEntries,
// and the SPIFFE IDs of the service accounts of its endpoints, in each trust domain of the mesh.
func subjectsOf(service *model.Service, tls *networking.ClientTLSSettings) []string {
	if len(tls.GetSubjectAltNames()) > 0 {
		return tls.GetSubjectAltNames()
	}
	names := make(map[string]bool)
	for _, name := range service.Names {
		names[name] = true
	}
	for _, p := range service.Ports {
		for _, e := range p.Endpoints() {
			if account := e.Spec.GetServiceAccount(); account != "" {
				names[spiffeScheme+service.Domains[0]+"/ns/"+e.Owner.Namespace+"/sa/"+account] = true
			}
		}
	}
	for _, name := range slices.Collect(maps.Keys(names)) {
		// spiffe://DOMAIN/ns/NAMESPACE/sa/ACCOUNT; other IDs are of one trust domain only, as with istiod
		if part := strings.Split(name, "/"); len(part) == 7 && part[0] == "spiffe:" && part[3] == "ns" && part[5] == "sa" {
			for _, part[2] = range service.Domains[1:] {
				names[strings.Join(part, "/")] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Metadata of an endpoint selects its transport socket.
const (
	matchedMetadata = "envoy.transport_socket_match"
	tlsModeMutual   = "istio"
)

func mutualFields() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"tlsMode": structpb.NewStringValue(tlsModeMutual)}}
}

// socketMatch is the encoded metadata of endpoints with mutual TLS.
var socketMatch = model.MustMarshal(&corev3.Metadata{
	FilterMetadata: map[string]*structpb.Struct{matchedMetadata: mutualFields()},
})

// mutualEndpoints returns a function that reports whether connections to an endpoint of a port or subset are mutual
// TLS: all if the policy requires it, and without a setting in the policy, those to endpoints that accept it. It is nil
// if no connections are. As with istiod, PeerAuthentications of the mesh and of workloads do not concern single
// endpoints of services with DNS resolution.
func mutualEndpoints(view *model.View, port *model.Port, subset *networking.Subset) func(*model.Endpoint) bool {
	if view.Mutual == nil {
		return nil
	}
	tls := view.Policy.On(port.Number, subset).GetTls()
	return func(e *model.Endpoint) bool {
		return model.IsMutual(tls) || tls == nil && view.Mutual.Auto && e.IsMutual() &&
			(model.IsDNS(view.Service.Resolution) || view.Mutual.Accepts(e, e.PortOf(port)))
	}
}

// setMutualTLS gives a cluster the transport sockets for mutual TLS: for all connections if the policy requires it, and
// without a setting in the policy, for those to endpoints that accept it.
func setMutualTLS(
	view *model.View, port *model.Port, subset *networking.Subset, cluster *clusterv3.Cluster,
	options *httpv3.HttpProtocolOptions,
) {
	if view.Mutual == nil {
		return
	}
	tls := view.Policy.On(port.Number, subset).GetTls()
	passthrough := cluster.GetType() == clusterv3.Cluster_ORIGINAL_DST // no endpoint decides a connection
	switch {
	case tls != nil && !model.IsMutual(tls), tls == nil && !view.Mutual.Auto,
		tls == nil && passthrough && !allMutual(port):
		return
	}
	sni := cmp.Or(tls.GetSni(), "outbound_."+model.RouteName(port.Number)+"_."+subset.GetName()+"_."+view.Service.Host)
	if len(sni) > model.MaxServerName {
		sni = ""
	}
	common := &tlsv3.CommonTlsContext{
		AlpnProtocols: []string{"istio"}, // servers distinguish mutual TLS from the TLS of applications by it
		TlsParams:     modernTLS(),
	}
	if options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil {
		common.AlpnProtocols = append(common.AlpnProtocols, "h2")
	}
	authenticatePeers(common, view.Client, subjectsOf(view.Service, tls), view.Service.Domains)
	socket := transportSocket(&tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: sni})
	if tls != nil || passthrough {
		cluster.TransportSocket = socket
		return
	}
	cluster.TransportSocketMatches = []*clusterv3.Cluster_TransportSocketMatch{
		{Name: "tlsMode-" + tlsModeMutual, Match: mutualFields(), TransportSocket: socket},
		{Name: "tlsMode-disabled", Match: &structpb.Struct{}, TransportSocket: plaintextSocket()},
	}
}

func plaintextSocket() *corev3.TransportSocket {
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.raw_buffer",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: model.ToAny(&rawv3.RawBuffer{})},
	}
}

// allMutual reports whether a port has endpoints, and all accept mutual TLS.
func allMutual(p *model.Port) bool {
	endpoints := p.Endpoints()
	return len(endpoints) > 0 && !slices.ContainsFunc(endpoints, func(e model.Endpoint) bool { return !e.IsMutual() })
}
