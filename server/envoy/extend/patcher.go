// Package extend changes resources for Envoys as EnvoyFilters and WasmPlugins ask, as istiod 1.27 does. It is pure.
//
// A patch is left out, and a finding names it and the reason, if its value is no message of Envoy's or Envoy would refuse the result. All
// other patches are applied, also one that disarms a filter that enforces security, with a finding.
package extend

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/proto/merge"

	"tributary/server/envoy/model"
)

// Patcher applies the patches of a context to resources.
type Patcher struct {
	list    []*model.Patch
	context networking.EnvoyFilter_PatchContext
	largest int // how many instructions a regular expression may have

	Applied  model.Findings // the places of patches that changed something, without a reason
	Findings model.Findings
}

// New returns a Patcher with those patches of an extension, which may be nil, that are for a context and apply to some things.
func New(e *model.Extension, context networking.EnvoyFilter_PatchContext, to []networking.EnvoyFilter_ApplyTo) *Patcher {
	if e == nil {
		return &Patcher{}
	}
	return &Patcher{context: context, largest: e.MaxProgram, list: slices.DeleteFunc(slices.Clone(e.Patches), func(p *model.Patch) bool {
		return !p.In(context) || !slices.Contains(to, p.ApplyTo)
	})}
}

// Idle says whether the patcher has no patches.
func (p *Patcher) Idle() bool { return len(p.list) == 0 }

// attempt is one application of patches to a resource.
type attempt struct {
	list    []*model.Patch
	context networking.EnvoyFilter_PatchContext
	used    map[*model.Patch]bool
	failed  map[*model.Patch]string // why they did not change something that they match
}

type named interface {
	proto.Message
	GetName() string
}

// apply patches a copy of a resource, and returns it, or nothing if the resource is removed. If Envoy would refuse the result, each patch
// with which it would refuse that of those before it is left out.
func apply[M named](p *Patcher, m M, patch func(*attempt, M) (keep bool)) (now M, keep bool) {
	if p.Idle() {
		return m, true
	}
	try := func(list []*model.Patch) (a *attempt, now M, keep bool, why string) {
		a = &attempt{list, p.context, make(map[*model.Patch]bool), make(map[*model.Patch]string)}
		now = proto.CloneOf(m)
		if keep = patch(a, now); keep && len(a.used) > 0 {
			if why = refused(now, p.largest); now.GetName() != m.GetName() {
				why = m.GetName() + " cannot be renamed"
			}
		}
		return a, now, keep, why
	}
	a, now, keep, why := try(p.list)
	if why != "" {
		var good []*model.Patch
		for _, patch := range p.list {
			more := append(slices.Clip(good), patch)
			if _, _, _, why := try(more); why != "" {
				p.Findings.Note(patch.Place, "%s", why)
				continue
			}
			good = more
		}
		a, now, keep, _ = try(good)
	}
	weaker := keep && disarmed(m, now)
	for i, patch := range a.list {
		if why := a.failed[patch]; why != "" {
			p.Findings.Note(patch.Place, "%s", why)
		}
		if !a.used[patch] {
			continue
		}
		p.Applied = append(p.Applied, model.Finding{Place: patch.Place})
		off := keep && patch.Value != nil && switchesOff(patch.Value)
		if weaker && !off {
			_, without, _, _ := try(slices.Delete(slices.Clone(a.list), i, i+1))
			off = !disarmed(m, without)
		}
		if off {
			p.Findings.Warn(patch.Place, "what enforces security is changed by it, as with istiod: requests or connections that were refused "+
				"may pass")
		}
	}
	if len(a.used) == 0 {
		now = m
	}
	return now, keep
}

type operations []networking.EnvoyFilter_Patch_Operation

// Operations of patches that are applied together, in the order of the patches.
var (
	merging  = operations{networking.EnvoyFilter_Patch_MERGE}
	changing = operations{networking.EnvoyFilter_Patch_MERGE, networking.EnvoyFilter_Patch_REMOVE, networking.EnvoyFilter_Patch_REPLACE}
	adding   = operations{
		networking.EnvoyFilter_Patch_ADD, networking.EnvoyFilter_Patch_INSERT_FIRST, networking.EnvoyFilter_Patch_INSERT_BEFORE,
		networking.EnvoyFilter_Patch_INSERT_AFTER,
	}
	editing = append(operations{networking.EnvoyFilter_Patch_REMOVE, networking.EnvoyFilter_Patch_REPLACE}, adding...)
)

// target is a list to which patches of a kind apply.
type target[E proto.Message] struct {
	to      networking.EnvoyFilter_ApplyTo
	is      func(*model.Patch) bool    // the patch is about the list; nil for all
	names   func(*model.Patch) bool    // it names elements of the list; nil for none
	matches func(*model.Patch, E) bool // it is about an element; nil for all
	merge   func(*model.Patch, E)      // nil merges messages
}

// change applies the patches of some operations to a list. As with istiod, only a part of the operations needs an element that is named.
func change[E proto.Message](a *attempt, list []E, t target[E], operations operations) []E {
	for _, p := range a.list {
		if p.ApplyTo != t.to || !slices.Contains(operations, p.Operation) || t.is != nil && !t.is(p) {
			continue
		}
		value := func() E {
			a.used[p] = true
			return proto.Clone(p.Value).(E)
		}
		named, matches := t.names != nil && t.names(p), func(e E) bool { return t.matches == nil || t.matches(p, e) }
		i, at := slices.IndexFunc(list, matches), -1
		switch p.Operation {
		case networking.EnvoyFilter_Patch_ADD:
			at = len(list)
		case networking.EnvoyFilter_Patch_INSERT_FIRST:
			if i >= 0 || !named || t.to != networking.EnvoyFilter_HTTP_ROUTE {
				at = 0
			}
		case networking.EnvoyFilter_Patch_INSERT_BEFORE:
			if at = i; !named {
				at = 0
			}
		case networking.EnvoyFilter_Patch_INSERT_AFTER:
			if !named {
				at = len(list)
			} else if i >= 0 {
				at = i + 1
			}
		case networking.EnvoyFilter_Patch_REPLACE:
			for ; i >= 0 && i < len(list); i++ {
				if all := t.to == networking.EnvoyFilter_VIRTUAL_HOST; (named || all) && matches(list[i]) {
					if list[i] = value(); !all {
						break
					}
				}
			}
		case networking.EnvoyFilter_Patch_REMOVE:
			if i >= 0 && (named || !strings.HasSuffix(t.to.String(), "_FILTER")) {
				list, a.used[p] = slices.DeleteFunc(list, matches), true
			}
		case networking.EnvoyFilter_Patch_MERGE:
			for _, e := range list {
				switch {
				case !matches(e):
				case t.merge != nil:
					t.merge(p, e)
				default:
					merge.Merge(e, p.Value)
					a.used[p] = true
				}
			}
		}
		if at >= 0 {
			list = slices.Insert(list, at, value())
		}
	}
	return list
}

// mergeConfig merges the typed_config of a patch into that of an element, and says whether the patch could be applied.
func (a *attempt) mergeConfig(patch *model.Patch, config, with *anypb.Any) bool {
	switch {
	case config == nil:
		a.failed[patch] = "the filter has no typed_config, into which nothing can be merged"
		return false
	case with != nil && config.GetTypeUrl() != with.GetTypeUrl():
		a.failed[patch] = "a typed_config of type " + with.GetTypeUrl() + " cannot be merged into one of type " + config.GetTypeUrl()
		return false
	case with != nil:
		to, err := config.UnmarshalNew()
		from, other := with.UnmarshalNew()
		if err != nil || other != nil { // all types are known
			return false
		}
		merge.Merge(to, from)
		config.Value = model.MustMarshal(to)
	}
	a.used[patch] = true
	return true
}
