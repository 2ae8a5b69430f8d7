package extend

import (
	"slices"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// edit adds the value of a patch to a list, or replaces or removes elements. matches says which ones the patch names; named is whether it
// names some at all. What it does elsewhere, by merging, is not done here.
func edit[E proto.Message](a *attempt, p *model.Patch, list []E, named bool, matches func(E) bool) []E {
	value := func() E {
		a.used[p] = true
		return proto.Clone(p.Value).(E)
	}
	i := slices.IndexFunc(list, matches)
	switch p.Operation {
	case networking.EnvoyFilter_Patch_ADD:
		return append(list, value())
	case networking.EnvoyFilter_Patch_INSERT_FIRST:
		return slices.Insert(list, 0, value())
	case networking.EnvoyFilter_Patch_INSERT_BEFORE:
		if !named {
			return slices.Insert(list, 0, value())
		}
		if i >= 0 {
			return slices.Insert(list, i, value())
		}
	case networking.EnvoyFilter_Patch_INSERT_AFTER:
		if !named {
			return append(list, value())
		}
		if i >= 0 {
			return slices.Insert(list, i+1, value())
		}
	case networking.EnvoyFilter_Patch_REPLACE:
		if named && i >= 0 {
			list[i] = value()
		}
	case networking.EnvoyFilter_Patch_REMOVE:
		if named && i >= 0 {
			a.used[p] = true
			return slices.DeleteFunc(list, matches)
		}
	}
	return list
}
