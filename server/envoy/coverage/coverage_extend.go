package coverage

import "google.golang.org/protobuf/reflect/protoreflect"

const (
	imageReason    = "images are not fetched: see url"
	waypointReason = "there are no waypoints: the patch matches as if it were not set"
)

// extensionDeclarations has EnvoyFilter and WasmPlugin. Findings report the values of patches.
var extensionDeclarations = map[protoreflect.FullName]declaration{
	"istio.networking.v1alpha3.EnvoyFilter": {
		translated: "workloadSelector targetRefs configPatches priority",
	},
	"istio.networking.v1alpha3.EnvoyFilter.EnvoyConfigObjectPatch": {translated: "applyTo match patch"},
	"istio.networking.v1alpha3.EnvoyFilter.EnvoyConfigObjectMatch": {
		translated:  "context proxy listener routeConfiguration cluster",
		unsupported: map[string]string{"waypoint": waypointReason},
	},
	"istio.networking.v1alpha3.EnvoyFilter.ProxyMatch": {translated: "proxyVersion metadata"},
	"istio.networking.v1alpha3.EnvoyFilter.ListenerMatch": {
		translated:  "portNumber filterChain listenerFilter name",
		unsupported: map[string]string{"portName": "it is not compared, as with istiod"},
	},
	"istio.networking.v1alpha3.EnvoyFilter.ListenerMatch.FilterChainMatch": {
		translated: "name sni transportProtocol applicationProtocols filter destinationPort transportSocket",
	},
	"istio.networking.v1alpha3.EnvoyFilter.ListenerMatch.FilterMatch":    {translated: "name subFilter"},
	"istio.networking.v1alpha3.EnvoyFilter.ListenerMatch.SubFilterMatch": {translated: "name"},
	"istio.networking.v1alpha3.EnvoyFilter.RouteConfigurationMatch": {
		translated: "portNumber portName gateway vhost name",
	},
	"istio.networking.v1alpha3.EnvoyFilter.RouteConfigurationMatch.VirtualHostMatch": {
		translated: "name domainName route",
	},
	"istio.networking.v1alpha3.EnvoyFilter.RouteConfigurationMatch.RouteMatch": {translated: "name action"},
	"istio.networking.v1alpha3.EnvoyFilter.ClusterMatch": {
		translated: "portNumber service subset name",
	},
	"istio.networking.v1alpha3.EnvoyFilter.Patch": {
		translated: "operation value",
		unsupported: map[string]string{
			"filterClass": "filters are where the operation says, as with istiod",
		},
	},

	"istio.extensions.v1alpha1.WasmPlugin": {
		translated: "selector targetRef targetRefs url sha256 pluginConfig pluginName phase priority failStrategy " +
			"vmConfig match type",
		meaningless: sameReason(imageReason, "imagePullPolicy", "imagePullSecret"),
		unsupported: map[string]string{"verificationKey": "signatures are not verified"},
	},
	"istio.extensions.v1alpha1.WasmPlugin.TrafficSelector": {translated: "mode ports"},
	"istio.extensions.v1alpha1.VmConfig":                   {translated: "env"},
	"istio.extensions.v1alpha1.EnvVar":                     {translated: "name valueFrom value"},
	"istio.type.v1beta1.PortSelector":                      {translated: "number"},
	"istio.type.v1beta1.PolicyTargetReference": {
		translated:  "group kind name",
		unsupported: map[string]string{"namespace": "it is that of the object"},
	},
}
