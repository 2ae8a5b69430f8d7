package coverage

import (
	"google.golang.org/protobuf/reflect/protoreflect"
)

// securityDeclarations has the security objects.
var securityDeclarations = map[protoreflect.FullName]declaration{
	"istio.security.v1beta1.AuthorizationPolicy": {
		translated: "selector targetRef targetRefs rules action provider",
	},
	"istio.security.v1beta1.AuthorizationPolicy.ExtensionProvider": {translated: "name"},
	"istio.security.v1beta1.Rule":                                  {translated: "from to when"},
	"istio.security.v1beta1.Rule.From":                             {translated: "source"},
	"istio.security.v1beta1.Rule.To":                               {translated: "operation"},
	"istio.security.v1beta1.Source": {translated: "principals notPrincipals requestPrincipals notRequestPrincipals " +
		"namespaces notNamespaces serviceAccounts notServiceAccounts ipBlocks notIpBlocks remoteIpBlocks " +
		"notRemoteIpBlocks trustDomains notTrustDomains"},
	"istio.security.v1beta1.Operation": {
		translated: "hosts notHosts ports notPorts methods notMethods paths notPaths",
	},
	"istio.security.v1beta1.Condition":             {translated: "key values notValues"},
	"istio.security.v1beta1.RequestAuthentication": {translated: "selector targetRef targetRefs jwtRules"},
	"istio.security.v1beta1.JWTRule": {
		translated: "issuer audiences jwksUri jwks fromHeaders fromParams fromCookies outputPayloadToHeader " +
			"forwardOriginalToken outputClaimToHeaders timeout spaceDelimitedClaims presence",
	},
	"istio.security.v1beta1.JWTHeader":         {translated: "name prefix"},
	"istio.security.v1beta1.ClaimToHeader":     {translated: "header claim"},
	"istio.type.v1beta1.PolicyTargetReference": {translated: "group kind name namespace"},

	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider.EnvoyExternalAuthorizationRequestBody": {
		translated: "maxRequestBytes allowPartialMessage packAsBytes",
	},
	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider.EnvoyExternalAuthorizationHttpProvider": {
		translated: "service port timeout pathPrefix failOpen clearRouteCache statusOnError includeHeadersInCheck " +
			"includeRequestHeadersInCheck includeAdditionalHeadersInCheck includeRequestBodyInCheck " +
			"headersToUpstreamOnAllow headersToDownstreamOnDeny headersToDownstreamOnAllow",
	},
	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider.EnvoyExternalAuthorizationGrpcProvider": {
		translated: "service port timeout failOpen clearRouteCache statusOnError includeRequestBodyInCheck",
	},
}
