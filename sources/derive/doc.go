// Package derive converts objects of the Kubernetes Gateway API and Ingresses to Istio's Gateways, VirtualServices and
// DestinationRules, as istiod 1.27.9 does (its pilot/pkg/config/kube/gateway and ingress). It is pure: all inputs are
// in a Set. docs/gateway-api.md has the conversion, and the differences from istiod.
package derive
