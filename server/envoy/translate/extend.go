package translate

import (
	networking "istio.io/api/networking/v1alpha3"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// ContextOf returns the context of patches for what clients of a role send out.
func ContextOf(role model.Role) networking.EnvoyFilter_PatchContext {
	if role == model.Ingress {
		return networking.EnvoyFilter_GATEWAY
	}
	return networking.EnvoyFilter_SIDECAR_OUTBOUND
}

// Patcher returns what applies the patches of an extension, which may be nil, for a context.
func Patcher(e *model.Extension, context networking.EnvoyFilter_PatchContext, to []networking.EnvoyFilter_ApplyTo) *extend.Patcher {
	return extend.New(e, context, to)
}

// patched adds what a patcher found.
func (t *Translation) patched(p *extend.Patcher) {
	t.Findings, t.Applied = append(t.Findings, p.Findings...), append(t.Applied, p.Applied...)
}

// inboundPlace returns the place of plugins in a listener of the workload.
func inboundPlace(port uint32) extend.Place {
	return extend.Place{Mode: typev1beta1.WorkloadMode_SERVER, Port: port}
}

// placeOf returns the place of plugins in a listener through which requests are sent out.
func placeOf(port uint32) extend.Place {
	return extend.Place{Mode: typev1beta1.WorkloadMode_CLIENT, Port: port}
}

// Added returns the clusters and listeners that patches add for clients of a role.
func Added(e *model.Extension, role model.Role) (clusters, listeners []*xds.Entry, applied, found model.Findings) {
	contexts := []networking.EnvoyFilter_PatchContext{ContextOf(role)}
	if role == model.Sidecar {
		contexts = append(contexts, networking.EnvoyFilter_SIDECAR_INBOUND)
	}
	for _, p := range extend.Added(e, contexts, &found) {
		applied = append(applied, model.Finding{Place: p.Place})
		if entry := EntryOf(p.Value); p.ApplyTo == networking.EnvoyFilter_CLUSTER {
			clusters = append(clusters, entry)
		} else {
			listeners = append(listeners, entry)
		}
	}
	return clusters, listeners, applied, found
}
