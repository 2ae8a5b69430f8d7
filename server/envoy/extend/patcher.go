// Package extend changes resources for Envoys as EnvoyFilters and WasmPlugins ask, as istiod 1.27 does. It is pure.
//
// A patch is left out, and a finding names it and the reason, if its value is no message of Envoy's or Envoy would refuse the result. All
// other patches are applied, also one that disarms a filter that enforces security, with a finding, unless model.Extension.Guards is set.
package extend

import (
	"cmp"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
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
	largest int  // how many instructions a regular expression may have
	guards  bool // see model.Extension
	found   *model.Findings
}

// New returns a Patcher with those patches of an extension, which may be nil, that are for a context. It adds to found the patches that
// changed something, see model.Findings.Applied, and what is wrong with patches.
func New(e *model.Extension, context networking.EnvoyFilter_PatchContext, found *model.Findings) *Patcher {
	if e == nil {
		return &Patcher{}
	}
	return &Patcher{context: context, largest: e.MaxProgram, guards: e.Guards, found: found, list: slices.DeleteFunc(slices.Clone(e.Patches),
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

// pass is one application of patches to a resource.
type pass struct {
	context networking.EnvoyFilter_PatchContext
	largest int
	configs map[*anypb.Any]proto.Message // decoded once for all patches
	decoded []*anypb.Any                 // in this order: a typed_config comes after that of which it is a part

	// checked passes validate what each patch touches. They cost as much as the patches, and not as much as the resource for each patch.
	checked bool
	undo    []func() // takes back the changes of the current patch
	why     string   // Envoy would refuse the result of the current patch
}

// step is an application of a patch to a resource.
type step struct {
	*model.Patch
	*pass

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
	var steps []*step
	guarding, routes := false, routesOf(m)
	run := func(checked bool, each func(*step)) (why string) {
		var guard guard[M]
		pass := &pass{context: p.context, largest: p.largest, checked: checked, configs: make(map[*anypb.Any]proto.Message)}
		now, keep, steps = proto.CloneOf(m), true, nil
		for i := 0; keep && i < len(list); i++ {
			s := &step{Patch: list[i], pass: pass}
			pass.undo, pass.why = nil, ""
			if guarding && !guard.save(s, now) {
				p.found.Note(s.Place, "%s", leftToRoot)
				continue
			}
			keep = patch(s, now)
			if now.GetName() != m.GetName() {
				pass.why = m.GetName() + " cannot be renamed"
			}
			if checked && s.used && s.Value != nil && pass.why == "" {
				pass.why = unserved(s.Value, routes)
			}
			if checked && keep && pass.why != "" {
				pass.takeBack()
				p.found.Note(s.Place, "%s", pass.why)
				continue
			}
			if guarding && guard.bypassed(s, now, keep) {
				now, keep = guard.before, true
				p.found.Note(s.Place, "%s", leftToRoot)
				continue
			}
			steps = append(steps, s)
			each(s)
		}
		pass.flush()
		if l, is := any(now).(*listenerv3.Listener); is {
			dropEmpty(l)
		}
		switch {
		case !keep || !slices.ContainsFunc(steps, func(s *step) bool { return s.used }):
			return ""
		case now.GetName() != m.GetName():
			return pass.why
		}
		return cmp.Or(refused(now, p.largest), unserved(now, routes))
	}
	unobserved := func(*step) {}
	checkedRun := func() (why string) {
		if run(false, unobserved) == "" {
			return ""
		}
		return run(true, unobserved)
	}
	why := checkedRun()
	if guarding = p.guards && mayBypass(steps, m, now, keep); guarding {
		why = checkedRun()
		guarding = false
	}
	if why != "" { // unpatched, Envoy would refuse it, too
		for _, s := range steps {
			if s.used {
				p.found.Note(s.Place, "%s", why)
			}
		}
		return m, true
	}
	protected := protectionOf(m)
	weaker := keep && protectionOf(now).lessThan(protected)
	if weaker {
		list = list[:0]
		for _, s := range steps {
			list = append(list, s.Patch)
		}
		left := maxMeasured
		run(false, func(s *step) { protected = s.measure(protected, now, &left) })
	}
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

// maxMeasured is how many patches of a resource with weakened security are told apart, which costs as much as the resource for each patch.
// All further patches that can weaken security are reported.
const maxMeasured = 64

// measure sets weakens by the protection before the step and of the result now, which it returns, if it may yet measure one.
func (s *step) measure(before protection, now proto.Message, left *int) protection {
	if !s.used || !s.canWeaken() {
		return before
	}
	if *left--; *left < 0 {
		s.weakens = true
		return before
	}
	s.flush()
	after := protectionOf(now)
	s.weakens = after.lessThan(before)
	return after
}

// canWeaken reports whether the patch may remove or change what enforces security, or add a filter chain without it.
func (s *step) canWeaken() bool {
	return !slices.Contains(inserting, s.Operation) || s.ApplyTo == networking.EnvoyFilter_FILTER_CHAIN
}

// onUndo adds what takes back a change of the current patch.
func (p *pass) onUndo(undo func()) {
	if p.checked {
		p.undo = append(p.undo, undo)
	}
}

// takeBack undoes what the current patch changed.
func (p *pass) takeBack() {
	for _, undo := range slices.Backward(p.undo) {
		undo()
	}
}

// check validates what the current patch touched.
func (p *pass) check(problem func() (why string)) {
	if p.checked && p.why == "" {
		p.why = problem()
	}
}

// config returns what is in a typed_config, which flush writes back, or nil.
func (p *pass) config(a *anypb.Any) proto.Message {
	m := p.configs[a]
	if m == nil && a != nil {
		if m, _ = a.UnmarshalNew(); m != nil {
			p.configs[a], p.decoded = m, append(p.decoded, a)
		}
	}
	return m
}

// flush encodes what was decoded.
func (p *pass) flush() {
	for _, a := range slices.Backward(p.decoded) {
		a.Value = model.MustMarshal(p.configs[a])
	}
	clear(p.configs)
	p.decoded = nil
}

// edit applies the patch to a list. named says that it names elements of the list; matches, that it is about one. merges merges into one;
// nil merges messages. As with istiod, only a part of the operations needs an element that is named.
func edit[E proto.Message](s *step, list *[]E, named bool, matches func(E) bool, merges func(E)) {
	value := func() E {
		s.used = true
		e := proto.Clone(s.Value).(E)
		s.check(func() string { return refused(e, s.largest) })
		return e
	}
	i, at := slices.IndexFunc(*list, matches), -1
	switch s.Operation {
	case networking.EnvoyFilter_Patch_ADD:
		at = len(*list)
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
			at = len(*list)
		} else if i >= 0 {
			at = i + 1
		}
	case networking.EnvoyFilter_Patch_REPLACE:
		all := s.ApplyTo == networking.EnvoyFilter_VIRTUAL_HOST
		for i, e := range *list {
			if (named || all) && matches(e) {
				s.onUndo(func() { (*list)[i] = e })
				if (*list)[i] = value(); !all {
					break
				}
			}
		}
	case networking.EnvoyFilter_Patch_REMOVE:
		if i >= 0 && (named || !strings.HasSuffix(s.ApplyTo.String(), "_FILTER")) {
			before := slices.Clone(*list)
			s.onUndo(func() { *list = before })
			*list, s.used = slices.DeleteFunc(*list, matches), true
		}
	case networking.EnvoyFilter_Patch_MERGE:
		for _, e := range *list {
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
		*list = slices.Insert(*list, at, value())
		s.onUndo(func() { *list = slices.Delete(*list, at, at+1) })
	}
}

// merge merges the value of the patch into a message. A typed_config to which the value has one must not be decoded: see flush.
func (s *step) merge(m proto.Message) { s.mergeValue(m, s.Value) }

// mergeValue merges a value, of which lists are appended, into a message.
func (s *step) mergeValue(m, value proto.Message) {
	s.used = true
	if !s.checked {
		merge.Merge(m, value)
		return
	}
	into, from, part := m.ProtoReflect(), value.ProtoReflect(), m.ProtoReflect().New()
	from.Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		s.saveField(into, field)
		return true
	})
	merge.Merge(m, value)
	cut := func(field protoreflect.FieldDescriptor, v protoreflect.Value) { // leaves out what was there before
		all, added := v.List(), part.NewField(field).List()
		for i := all.Len() - from.Get(field).List().Len(); i < all.Len(); i++ {
			added.Append(all.Get(i))
		}
		part.Set(field, protoreflect.ValueOfList(added))
	}
	into.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if part.Set(field, v); slices.Contains(long, field.Name()) {
			cut(field, v)
		}
		return true
	})
	s.check(func() string {
		if why := invalid(part.Interface()); why != "" {
			return why
		}
		into.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if field.IsList() {
				cut(field, v)
			}
			return true
		})
		return cmp.Or(refusedIn(part.Interface(), s.largest), misplaced(m))
	})
}

// long are the lists without limits, of which a message is valid whatever the other elements are.
var long = []protoreflect.Name{"filter_chains", "http_filters", "virtual_hosts", "routes"}

// saveField has takeBack restore a field to which a value is about to be merged.
func (s *step) saveField(m protoreflect.Message, field protoreflect.FieldDescriptor) {
	if choice := field.ContainingOneof(); choice != nil {
		if other := m.WhichOneof(choice); other != nil && other != field {
			v := m.Get(other)
			s.onUndo(func() { m.Set(other, v) })
			return
		}
	}
	v := m.Get(field)
	switch {
	case !m.Has(field):
		s.onUndo(func() { m.Clear(field) })
	case field.IsList():
		n := v.List().Len()
		s.onUndo(func() { m.Mutable(field).List().Truncate(n) })
	case field.IsMap() || field.Message() != nil:
		before := m.New() // has a copy of the field
		before.Set(field, v)
		v = proto.Clone(before.Interface()).ProtoReflect().Get(field)
		s.onUndo(func() { m.Set(field, v) })
	default:
		s.onUndo(func() { m.Set(field, v) })
	}
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
		to := s.config(config)
		from, err := with.UnmarshalNew()
		if err != nil || to == nil { // all types are known
			return false
		}
		s.mergeValue(to, from)
	}
	s.used = true
	return true
}
