// Package extend changes resources for Envoys as EnvoyFilters and WasmPlugins ask, as istiod 1.27 does. It is pure.
//
// A patch is left out, and a finding names it and the reason, if its value is no message of Envoy's or Envoy would refuse the result. All
// other patches are applied, also one that disarms a filter that enforces security, with a finding.
package extend

import (
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/proto/merge"

	"tributary/server/envoy/model"
)

// ContextOf returns the context of patches for what clients of a role send out.
func ContextOf(role model.Role) networking.EnvoyFilter_PatchContext {
	if role == model.Ingress {
		return networking.EnvoyFilter_GATEWAY
	}
	return networking.EnvoyFilter_SIDECAR_OUTBOUND
}

// Patcher applies the patches of a context to resources.
type Patcher struct {
	list    []*model.Patch
	context networking.EnvoyFilter_PatchContext
	largest int // how many instructions a regular expression may have
	found   *model.Findings
}

// New returns a Patcher with those patches of an extension, which may be nil, that are for a context. It adds to found the patches that
// changed something, see model.Findings.Applied, and what is wrong with patches.
func New(e *model.Extension, context networking.EnvoyFilter_PatchContext, found *model.Findings) *Patcher {
	if e == nil {
		return &Patcher{}
	}
	return &Patcher{context: context, largest: e.MaxProgram, found: found, list: slices.DeleteFunc(slices.Clone(e.Patches),
		func(p *model.Patch) bool { return !p.In(context) })}
}

type operations []networking.EnvoyFilter_Patch_Operation

// Operations of patches that are applied together.
var (
	merging  = operations{networking.EnvoyFilter_Patch_MERGE}
	changing = operations{networking.EnvoyFilter_Patch_MERGE, networking.EnvoyFilter_Patch_REMOVE}
	adding   = operations{networking.EnvoyFilter_Patch_ADD}
	// inserting is for lists in an order.
	inserting = append(operations{
		networking.EnvoyFilter_Patch_INSERT_FIRST, networking.EnvoyFilter_Patch_INSERT_BEFORE, networking.EnvoyFilter_Patch_INSERT_AFTER,
	}, adding...)
	editing = append(operations{networking.EnvoyFilter_Patch_REMOVE, networking.EnvoyFilter_Patch_REPLACE}, inserting...)
)

// phase has the patches that apply to a kind of thing by some operations. They are applied in their order.
type phase struct {
	to networking.EnvoyFilter_ApplyTo
	operations
}

func (ph phase) has(p *model.Patch) bool {
	return p.ApplyTo == ph.to && slices.Contains(ph.operations, p.Operation)
}

// The phases in which resources are patched, which are all that have an effect, as with istiod.
var (
	ToClusters = []phase{{networking.EnvoyFilter_CLUSTER, changing}}
	ToRoutes   = []phase{
		{networking.EnvoyFilter_ROUTE_CONFIGURATION, merging},
		{networking.EnvoyFilter_VIRTUAL_HOST, append(operations{networking.EnvoyFilter_Patch_REPLACE}, changing...)},
		{networking.EnvoyFilter_HTTP_ROUTE, changing},
		{networking.EnvoyFilter_HTTP_ROUTE, inserting},
		{networking.EnvoyFilter_VIRTUAL_HOST, adding},
	}
	toListeners = slices.Concat([]phase{ // and the routes that are a part of them
		{networking.EnvoyFilter_LISTENER, changing},
		{networking.EnvoyFilter_LISTENER_FILTER, append(merging, editing...)},
		{networking.EnvoyFilter_FILTER_CHAIN, changing},
		{networking.EnvoyFilter_NETWORK_FILTER, editing},
		{networking.EnvoyFilter_NETWORK_FILTER, merging},
		{networking.EnvoyFilter_HTTP_FILTER, editing},
		{networking.EnvoyFilter_HTTP_FILTER, merging},
	}, ToRoutes, []phase{{networking.EnvoyFilter_FILTER_CHAIN, adding}})
	added = []phase{{networking.EnvoyFilter_CLUSTER, adding}, {networking.EnvoyFilter_LISTENER, adding}}
)

// inPhases returns patches in the order of phases.
func inPhases(list []*model.Patch, phases []phase) (all []*model.Patch) {
	for _, ph := range phases {
		for _, p := range list {
			if ph.has(p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// step is an application of a patch to a resource.
type step struct {
	*model.Patch
	context networking.EnvoyFilter_PatchContext

	used    bool
	failed  string // why it did not change something that it matches
	weakens bool   // what enforces security
}

type named interface {
	proto.Message
	GetName() string
}

// apply patches a copy of a resource, and returns it, or nothing if the resource is removed. If Envoy would refuse the result, each patch
// with which it would refuse that of those before it is left out.
func apply[M named](p *Patcher, m M, phases []phase, patch func(*step, M) (keep bool)) (now M, keep bool) {
	list := inPhases(p.list, phases)
	if len(list) == 0 {
		return m, true
	}
	was := protectionOf(m)
	var protected protection
	var steps []*step
	run := func(list []*model.Patch) (why string) {
		now, keep, protected, steps = proto.CloneOf(m), true, was, nil
		for i := 0; keep && i < len(list); i++ {
			s := &step{Patch: list[i], context: p.context}
			if keep = patch(s, now); s.used && keep {
				before := protected
				protected = protectionOf(now)
				s.weakens = protected.lessThan(before)
			}
			steps = append(steps, s)
		}
		if l, is := any(now).(*listenerv3.Listener); is {
			dropEmpty(l)
		}
		switch {
		case !keep || !slices.ContainsFunc(steps, func(s *step) bool { return s.used }):
		case now.GetName() != m.GetName():
			why = m.GetName() + " cannot be renamed"
		default:
			why = refused(now, p.largest)
		}
		return why
	}
	if run(list) != "" {
		var good []*model.Patch
		for _, patch := range list {
			more := append(slices.Clip(good), patch)
			if why := run(more); why != "" {
				p.found.Note(patch.Place, "%s", why)
				continue
			}
			good = more
		}
		run(good)
	}
	weaker := keep && protected.lessThan(was)
	for _, s := range steps {
		if s.failed != "" {
			p.found.Note(s.Place, "%s", s.failed)
		}
		if s.used {
			p.found.Applied(s.Place)
		}
		if weaker && s.weakens || keep && s.used && s.Value != nil && switchesOff(s.Value) {
			p.found.Warn(s.Place, "what enforces security is changed by it, as with istiod: requests or connections that were refused "+
				"may pass")
		}
	}
	return now, keep
}

// edit applies the patch to a list. named says that it names elements of the list; matches, that it is about one. merges merges into one;
// nil merges messages. As with istiod, only a part of the operations needs an element that is named.
func edit[E proto.Message](s *step, list []E, named bool, matches func(E) bool, merges func(E)) []E {
	value := func() E {
		s.used = true
		return proto.Clone(s.Value).(E)
	}
	i, at := slices.IndexFunc(list, matches), -1
	switch s.Operation {
	case networking.EnvoyFilter_Patch_ADD:
		at = len(list)
	case networking.EnvoyFilter_Patch_INSERT_FIRST:
		if i >= 0 || !named || s.ApplyTo != networking.EnvoyFilter_HTTP_ROUTE {
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
		all := s.ApplyTo == networking.EnvoyFilter_VIRTUAL_HOST
		for i, e := range list {
			if (named || all) && matches(e) {
				if list[i] = value(); !all {
					break
				}
			}
		}
	case networking.EnvoyFilter_Patch_REMOVE:
		if i >= 0 && (named || !strings.HasSuffix(s.ApplyTo.String(), "_FILTER")) {
			list, s.used = slices.DeleteFunc(list, matches), true
		}
	case networking.EnvoyFilter_Patch_MERGE:
		for _, e := range list {
			switch {
			case !matches(e):
			case merges != nil:
				merges(e)
			default:
				s.merge(e)
			}
		}
	}
	if at >= 0 {
		list = slices.Insert(list, at, value())
	}
	return list
}

func (s *step) merge(m proto.Message) {
	merge.Merge(m, s.Value)
	s.used = true
}

// mergeConfig merges the typed_config of the patch into that of an element, and says whether it could.
func (s *step) mergeConfig(config, with *anypb.Any) bool {
	switch {
	case config == nil:
		s.failed = "the filter has no typed_config, into which nothing can be merged"
		return false
	case with != nil && config.GetTypeUrl() != with.GetTypeUrl():
		s.failed = "a typed_config of type " + with.GetTypeUrl() + " cannot be merged into one of type " + config.GetTypeUrl()
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
	s.used = true
	return true
}
