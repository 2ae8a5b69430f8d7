package extend

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/server/envoy/model"
)

// Decoded is an EnvoyFilter with its patches. It is not modified once it was made.
type Decoded struct {
	*networking.EnvoyFilter
	Patches []*model.Patch // that can have an effect
	found   model.Findings
}

// GetSelector returns the labels of the clients that it is for, as other objects do.
func (d *Decoded) GetSelector() *typev1beta1.WorkloadSelector {
	return &typev1beta1.WorkloadSelector{MatchLabels: d.GetWorkloadSelector().GetLabels()}
}

// Filter is an EnvoyFilter that selects clients.
type Filter = model.Object[*Decoded]

// WasmPlugin is a WasmPlugin.
type WasmPlugin = model.Object[*extensionsv1alpha1.WasmPlugin]

// Of returns what EnvoyFilters and WasmPlugins change for the clients of a profile, or nil. They are those that select the clients, of the
// clients' namespace and then of the root namespace, the oldest first. Those of the root namespace are applied first.
func Of(filters []*Filter, plugins []*WasmPlugin, client model.Profile, cluster ClusterOf) *model.Extension {
	if len(filters)+len(plugins) == 0 {
		return nil
	}
	e := &model.Extension{MaxProgram: client.LargestProgram()}
	slices.SortStableFunc(filters, func(a, b *Filter) int {
		if order := cmp.Compare(a.Spec.GetPriority(), b.Spec.GetPriority()); order != 0 || a.Key.Namespace == b.Key.Namespace {
			return order
		} else if a.Key.Namespace == model.RootNamespace {
			return -1
		}
		return 1
	})
	for _, f := range filters {
		e.Objects, e.Findings = append(e.Objects, f.Key), append(e.Findings, f.Spec.found...)
		for _, p := range f.Spec.Patches {
			if isFor(p.Match.GetProxy(), client) {
				e.Patches = append(e.Patches, p)
			}
		}
	}
	slices.SortStableFunc(plugins, func(a, b *WasmPlugin) int {
		return cmp.Or(cmp.Compare(slotOf(a.Spec), slotOf(b.Spec)), cmp.Compare(rank(a.Spec), rank(b.Spec)))
	})
	for _, o := range plugins {
		e.Objects = append(e.Objects, o.Key)
		if p := plugin(o, cluster, &e.Findings); p != nil {
			e.Plugins = append(e.Plugins, p)
		}
	}
	e.Findings = e.Findings.Sorted()
	e.From = digest(e)
	return e
}

// isFor says whether a patch is for the clients of a profile.
func isFor(m *networking.EnvoyFilter_ProxyMatch, client model.Profile) bool {
	if expression := m.GetProxyVersion(); expression != "" {
		re, err := regexp.Compile(expression)
		if err != nil || client.Version == "" || !re.MatchString(client.Version) {
			return false
		}
	}
	has := model.LabelMapOf(client.Metadata)
	for name, value := range m.GetMetadata() {
		if got, ok := has[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// Only returns the part of an extension that has patches of some phases, or nil if there are none.
func Only(e *model.Extension, phases []phase) *model.Extension {
	if e == nil {
		return nil
	}
	part := &model.Extension{MaxProgram: e.MaxProgram, Guards: e.Guards, Patches: inPhases(e.Patches, phases)}
	if len(part.Patches) == 0 {
		return nil
	}
	part.From = digest(part)
	return part
}

func digest(e *model.Extension) string {
	var from model.Digest
	from.Number(int64(e.MaxProgram))
	from.Number(int64(len(e.Patches)))
	for _, p := range e.Patches {
		from.Text(p.From)
	}
	for _, p := range e.Plugins {
		model.AddMessages[proto.Message](&from, p.Filter, p.Spec)
	}
	from.Found(e.Objects, e.Findings)
	return string(from)
}

// Added returns the clusters and listeners that patches add for clients of a role, and adds to found as New says.
func Added(e *model.Extension, role model.Role, found *model.Findings) (all []proto.Message) {
	if e == nil {
		return nil
	}
	names := make(map[string]bool)
	for _, p := range inPhases(e.Patches, added) {
		if !p.In(ContextOf(role)) && (role != model.Sidecar || !p.In(networking.EnvoyFilter_SIDECAR_INBOUND)) {
			continue
		}
		own := p.Value.(named).GetName()
		name, why := p.ApplyTo.String()+" "+own, refused(p.Value, e.MaxProgram)
		switch {
		case why != "":
		case e.Guards && p.ApplyTo == networking.EnvoyFilter_LISTENER && p.Of.Namespace != model.RootNamespace:
			why = leftToRoot // a listener without policies
		case isOurs(own):
			why = own + " is a name, or of the form of the names, of what is made of other objects"
		case names[name]:
			why = "there is another " + name
		default:
			names[name] = true
			all = append(all, p.Value)
			found.Applied(p.Place)
			continue
		}
		found.Note(p.Place, "%s", why)
	}
	return all
}

// isOurs says whether a name is one that resources have which are made of other objects.
func isOurs(name string) bool {
	_, err := netip.ParseAddr(name[:max(strings.LastIndexByte(name, '_'), 0)])
	return err == nil || name == "" || name == model.BlackHole || name == model.Passthrough || strings.HasPrefix(name, "virtual") ||
		strings.HasPrefix(name, "outbound|") || strings.HasPrefix(name, "inbound|")
}
