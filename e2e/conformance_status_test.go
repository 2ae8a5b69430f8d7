package e2e

import (
	"math/rand/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const conformanceController gatewayv1.GatewayController = "istio.io/gateway-controller"

// granted has, for each type of condition, the reasons with which tests of the suite expect it, those of a true one
// first.
var granted = []struct {
	kind     string
	affirmed []string
	denied   []string
}{
	{"Accepted", []string{"Accepted", "ListenersNotValid"}, []string{
		"NotAllowedByListeners", "NoMatchingListenerHostname", "NoMatchingParent", "UnsupportedValue", "Invalid",
		"NoValidCACertificate", "Conflicted", "NoReadyParent", "UnsupportedProtocol", "ListenersNotValid",
	}},
	{"Programmed", []string{"Programmed"}, []string{"Invalid"}},
	{"ResolvedRefs", []string{"ResolvedRefs"}, []string{
		"RefNotPermitted", "BackendNotFound", "InvalidKind", "InvalidCACertificateRef", "InvalidCertificateRef",
		"InvalidRouteKinds", "InvalidClientCertificateRef", "InvalidCACertificateKind",
	}},
	{"Conflicted", []string{"HostnameConflict", "ProtocolConflict"}, []string{"NoConflicts"}},
	{"InsecureFrontendValidationMode", []string{"ConfigurationChanged"}, nil},
}

// grant adds a status to an object that fulfils every expectation of the suite. So tests wait for no controller, and
// compare only requests.
func (c *conformanceCluster) grant(object kubeclient.Object) {
	conditions := func() (list []metav1.Condition) {
		for _, row := range granted {
			for i, reasons := range [][]string{row.affirmed, row.denied} {
				for _, reason := range reasons {
					list = append(list, metav1.Condition{
						Type: row.kind, Reason: reason, ObservedGeneration: object.GetGeneration(),
						Status: []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}[i],
					})
				}
			}
		}
		return list
	}
	parents := func(references []gatewayv1.ParentReference) (statuses []gatewayv1.RouteParentStatus) {
		for _, reference := range references {
			statuses = append(statuses, gatewayv1.RouteParentStatus{
				ParentRef: reference, ControllerName: conformanceController, Conditions: conditions(),
			})
		}
		return statuses
	}
	var kinds []gatewayv1.RouteGroupKind
	for _, kind := range []gatewayv1.Kind{"HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"} {
		kinds = append(kinds, gatewayv1.RouteGroupKind{Kind: kind})
	}
	switch o := object.(type) {
	case *gatewayv1.GatewayClass:
		o.Status.Conditions = conditions()
	case *gatewayv1.Gateway:
		address := gatewayv1.IPAddressType
		envoy := c.gateway(kubeclient.ObjectKeyFromObject(o))
		o.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Type: &address, Value: envoy}}
		o.Status.Conditions = conditions()
		sets := attachedRoutes()
		o.Status.AttachedListenerSets = &sets
		for _, listener := range o.Spec.Listeners {
			o.Status.Listeners = append(o.Status.Listeners, gatewayv1.ListenerStatus{
				Name: listener.Name, Conditions: conditions(), SupportedKinds: kinds, AttachedRoutes: attachedRoutes(),
			})
		}
	case *gatewayv1.ListenerSet:
		o.Status.Conditions = conditions()
		for _, listener := range o.Spec.Listeners {
			o.Status.Listeners = append(o.Status.Listeners, gatewayv1.ListenerEntryStatus{
				Name: listener.Name, Conditions: conditions(), SupportedKinds: kinds, AttachedRoutes: attachedRoutes(),
			})
		}
	case *gatewayv1.HTTPRoute:
		o.Status.Parents = parents(o.Spec.ParentRefs)
	case *gatewayv1.GRPCRoute:
		o.Status.Parents = parents(o.Spec.ParentRefs)
	case *gatewayv1.TLSRoute:
		o.Status.Parents = parents(o.Spec.ParentRefs)
	case *gatewayv1.TCPRoute:
		o.Status.Parents = parents(o.Spec.ParentRefs)
	case *gatewayv1.BackendTLSPolicy:
		c.mu.Lock()
		defer c.mu.Unlock()
		for name := range c.gateways {
			namespace := gatewayv1.Namespace(name.Namespace)
			o.Status.Ancestors = append(o.Status.Ancestors, gatewayv1.PolicyAncestorStatus{
				AncestorRef:    gatewayv1.ParentReference{Name: gatewayv1.ObjectName(name.Name), Namespace: &namespace},
				ControllerName: conformanceController, Conditions: conditions(),
			})
		}
	}
}

// attachedRoutes returns a random number of routes of a listener: a test that waits for numbers sees them after some reads. A
// counter of reads would repeat the same numbers for tests that read in step.
func attachedRoutes() int32 { return rand.Int32N(4) } //nolint:gosec // no secret
