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

// Decoded is an immutable EnvoyFilter with its patches.
type Decoded struct {
	*networking.EnvoyFilter
	Patches  []*model.Patch // that can have an effect
	findings model.Findings
}

// GetSelector returns the labels of the clients that the filter selects, with the signature of other objects.
func (d *Decoded) GetSelector() *typev1beta1.WorkloadSelector {
	return &typev1beta1.WorkloadSelector{MatchLabels: d.GetWorkloadSelector().GetLabels()}
}

// Filter is an EnvoyFilter that selects clients.
type Filter = model.Object[*Decoded]

// WasmPlugin is a WasmPlugin.
type WasmPlugin = model.Object[*extensionsv1alpha1.WasmPlugin]

// ForProfile returns the changes that EnvoyFilters and WasmPlugins make for the clients of a profile, or nil. The
// arguments are the objects that select the clients: those of the clients' namespace before those of the root
// namespace, the oldest first. Filters of the root namespace are applied first.
func ForProfile(filters []*Filter, plugins []*WasmPlugin, client model.Profile, cluster ClusterOf) *model.Extension {
	if len(filters)+len(plugins) == 0 {
		return nil
	}
	extension := &model.Extension{MaxProgram: client.LargestProgram()}
	slices.SortStableFunc(filters, func(a, b *Filter) int {
		if order := cmp.Compare(a.Spec.GetPriority(), b.Spec.GetPriority()); order != 0 ||
			a.Key.Namespace == b.Key.Namespace {
			return order
		} else if a.Key.Namespace == model.RootNamespace {
			return -1
		}
		return 1
	})
	for _, filter := range filters {
		extension.Objects, extension.Findings = append(extension.Objects, filter.Key),
			append(extension.Findings, filter.Spec.findings...)
		for _, filterOfPlugin := range filter.Spec.Patches {
			if appliesTo(filterOfPlugin.Match.GetProxy(), client) {
				extension.Patches = append(extension.Patches, filterOfPlugin)
			}
		}
	}
	slices.SortStableFunc(plugins, func(a, b *WasmPlugin) int {
		return cmp.Or(cmp.Compare(phaseRank(a.Spec), phaseRank(b.Spec)),
			cmp.Compare(priorityRank(a.Spec), priorityRank(b.Spec)))
	})
	for _, object := range plugins {
		extension.Objects = append(extension.Objects, object.Key)
		if filterOfPlugin := pluginFilter(object, cluster, &extension.Findings); filterOfPlugin != nil {
			extension.Plugins = append(extension.Plugins, filterOfPlugin)
		}
	}
	extension.Findings = extension.Findings.Sorted()
	extension.From = digest(extension)
	return extension
}

// appliesTo says whether a patch applies to the clients of a profile.
func appliesTo(match *networking.EnvoyFilter_ProxyMatch, client model.Profile) bool {
	if expression := match.GetProxyVersion(); expression != "" {
		re, err := regexp.Compile(expression)
		if err != nil || client.Version == "" || !re.MatchString(client.Version) {
			return false
		}
	}
	return model.SelectsLabels(match.GetMetadata(), model.LabelMapOf(client.Metadata))
}

// Only returns the part of an extension that has patches of some phases, or nil if there are none.
func Only(extension *model.Extension, phases []phase) *model.Extension {
	if extension == nil {
		return nil
	}
	part := &model.Extension{
		MaxProgram: extension.MaxProgram, Guards: extension.Guards,
		Patches: inPhases(extension.Patches, phases),
	}
	if len(part.Patches) == 0 {
		return nil
	}
	part.From = digest(part)
	return part
}

func digest(extension *model.Extension) string {
	var from model.Digest
	from.Number(int64(extension.MaxProgram))
	from.Number(int64(len(extension.Patches)))
	for _, patch := range extension.Patches {
		from.Text(patch.From)
	}
	for _, plugin := range extension.Plugins {
		model.AddMessages[proto.Message](&from, plugin.Filter, plugin.Spec)
	}
	from.Findings(extension.Objects, extension.Findings)
	return string(from)
}

// Added returns the clusters and listeners that patches add for clients of a role. It records findings as New does.
func Added(extension *model.Extension, role model.Role, findings *model.Findings) (resources []proto.Message) {
	if extension == nil {
		return nil
	}
	names := make(map[string]bool)
	for _, patch := range inPhases(extension.Patches, additions) {
		if !patch.InContext(ContextOf(role)) &&
			(role != model.Sidecar || !patch.InContext(networking.EnvoyFilter_SIDECAR_INBOUND)) {
			continue
		}
		name := patch.Value.(namedMessage).GetName()
		qualified, reason := patch.ApplyTo.String()+" "+name, refused(patch.Value, extension.MaxProgram)
		switch {
		case reason != "":
		case extension.Guards && patch.ApplyTo == networking.EnvoyFilter_LISTENER &&
			patch.Object.Namespace != model.RootNamespace:
			reason = rootOnly // a listener without policies
		case isReserved(name):
			reason = name + " is reserved for resources that are made from other objects"
		case names[qualified]:
			reason = "there is another " + qualified
		default:
			names[qualified] = true
			resources = append(resources, patch.Value)
			findings.Applied(patch.Place)
			continue
		}
		findings.Note(patch.Place, "%s", reason)
	}
	return resources
}

// isReserved says whether resources that are made from other objects have names of this form.
func isReserved(name string) bool {
	_, err := netip.ParseAddr(name[:max(strings.LastIndexByte(name, '_'), 0)])
	return err == nil || name == "" || name == model.BlackHole || name == model.Passthrough ||
		strings.HasPrefix(name, "virtual") ||
		strings.HasPrefix(name, "outbound|") || strings.HasPrefix(name, "inbound|")
}
