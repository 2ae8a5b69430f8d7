package model

import (
	"cmp"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"tributary/resource"
)

// Object is a decoded object that selects clients.
type Object[T any] struct {
	Key     resource.Key
	Created time.Time
	Version string
	Spec    T
	DryRun  string // the value of DryRunAnnotation
}

// DryRunAnnotation limits an AuthorizationPolicy to statistics if it is true.
const DryRunAnnotation = "istio.io/dry-run"

// Compare orders objects by age, and those of the same age by name.
func (t *Object[T]) Compare(o *Object[T]) int {
	return cmp.Or(t.Created.Compare(o.Created), OlderName(t.Key, o.Key))
}

// KeysOf returns the keys of objects.
func KeysOf[T any](objects []*Object[T]) []resource.Key {
	keys := make([]resource.Key, len(objects))
	for i, o := range objects {
		keys[i] = o.Key
	}
	return keys
}

// AuthorizationPolicy is an AuthorizationPolicy.
type AuthorizationPolicy = Object[*securityv1beta1.AuthorizationPolicy]

// RequestAuthentication is a RequestAuthentication.
type RequestAuthentication = Object[*securityv1beta1.RequestAuthentication]

// PeerAuthentication is a PeerAuthentication.
type PeerAuthentication = Object[*securityv1beta1.PeerAuthentication]

// WorkloadGroup describes the health checks of its workloads.
type WorkloadGroup = Object[*networking.WorkloadGroup]

// Security has the rules of security objects for the listeners of a workload or a gateway. It is immutable.
type Security struct {
	HTTP []*hcmv3.HttpFilter  // of requests, before all other filters, in order
	TCP  []*listenerv3.Filter // of connections that are not HTTP, before all other filters, in order

	Mutual       MutualTLS            // of inbound connections
	MutualByPort map[uint32]MutualTLS // exceptions for ports of the workload
	Plaintext    bool                 // listeners accept plaintext despite strict mutual TLS

	Paths meshv1alpha1.MeshConfig_ProxyPathNormalization_NormalizationType // of requests, before filters see them
	// the trust domain of the mesh, and its aliases
	Domains []string
	TLS     *meshv1alpha1.MeshConfig_TLSConfig // of mutual TLS; may be nil

	Objects  []resource.Key // behind it
	Findings Findings
	From     string // equal for equal content
}

// MutualTLS is the mode of inbound connections.
type MutualTLS int

// The modes of mutual TLS.
const (
	Permissive MutualTLS = iota // mutual TLS and plaintext; the default
	Strict                      // mutual TLS only
	Disabled                    // plaintext only
)

// The metadata of verified tokens, for other filters and for routes.
const (
	TokenFilter  = "envoy.filters.http.jwt_authn" //nolint:gosec // a name
	TokenPayload = "payload"
)
