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

// ContextOf returns the patch context of the outbound traffic of a role.
func ContextOf(role model.Role) networking.EnvoyFilter_PatchContext {
	if role == model.Ingress {
		return networking.EnvoyFilter_GATEWAY
	}
	return networking.EnvoyFilter_SIDECAR_OUTBOUND
}

// Patcher applies the patches of a context to resources.
type Patcher struct {
	patches    []*model.Patch
	context    networking.EnvoyFilter_PatchContext
	maxProgram int  // how many instructions a regular expression may have
	guards     bool // see model.Extension
	findings   *model.Findings
}

// New returns a Patcher with the patches of an extension for a context. The extension may be nil. The Patcher adds
// applied patches (see model.Findings.Applied) and the problems of patches to findings.
func New(extension *model.Extension, context networking.EnvoyFilter_PatchContext, findings *model.Findings) *Patcher {
	if extension == nil {
		return &Patcher{}
	}
	return &Patcher{
		context: context, maxProgram: extension.MaxProgram, guards: extension.Guards, findings: findings,
		patches: slices.DeleteFunc(slices.Clone(extension.Patches),
			func(patch *model.Patch) bool { return !patch.InContext(context) }),
	}
}

type operations []networking.EnvoyFilter_Patch_Operation

// Operations of patches that are applied together.
var (
	merging  = operations{networking.EnvoyFilter_Patch_MERGE}
	changing = operations{networking.EnvoyFilter_Patch_MERGE, networking.EnvoyFilter_Patch_REMOVE}
	adding   = operations{networking.EnvoyFilter_Patch_ADD}
	// inserting applies to ordered lists.
	inserting = append(operations{
		networking.EnvoyFilter_Patch_INSERT_FIRST, networking.EnvoyFilter_Patch_INSERT_BEFORE,
		networking.EnvoyFilter_Patch_INSERT_AFTER,
	}, adding...)
	editing = append(operations{networking.EnvoyFilter_Patch_REMOVE, networking.EnvoyFilter_Patch_REPLACE}, inserting...)
)

// phase selects patches by target and operation. Patches of a phase are applied in their order.
type phase struct {
	to networking.EnvoyFilter_ApplyTo
	operations
}

func (ph phase) selects(patch *model.Patch) bool {
	return patch.ApplyTo == ph.to && slices.Contains(ph.operations, patch.Operation)
}

// The phases of patching, in order. Patches outside of them have no effect, as with istiod.
var (
	ClusterPhases = []phase{{networking.EnvoyFilter_CLUSTER, changing}}
	RoutePhases   = []phase{
		{networking.EnvoyFilter_ROUTE_CONFIGURATION, merging},
		{networking.EnvoyFilter_VIRTUAL_HOST, append(operations{networking.EnvoyFilter_Patch_REPLACE}, changing...)},
		{networking.EnvoyFilter_HTTP_ROUTE, changing},
		{networking.EnvoyFilter_HTTP_ROUTE, inserting},
		{networking.EnvoyFilter_VIRTUAL_HOST, adding},
	}
	listenerPhases = slices.Concat([]phase{ // includes inline routes
		{networking.EnvoyFilter_LISTENER, changing},
		{networking.EnvoyFilter_LISTENER_FILTER, append(merging, editing...)},
		{networking.EnvoyFilter_FILTER_CHAIN, changing},
		{networking.EnvoyFilter_NETWORK_FILTER, editing},
		{networking.EnvoyFilter_NETWORK_FILTER, merging},
		{networking.EnvoyFilter_HTTP_FILTER, editing},
		{networking.EnvoyFilter_HTTP_FILTER, merging},
	}, RoutePhases, []phase{{networking.EnvoyFilter_FILTER_CHAIN, adding}})
	additions = []phase{{networking.EnvoyFilter_CLUSTER, adding}, {networking.EnvoyFilter_LISTENER, adding}}
)

// inPhases returns patches in the order of phases.
func inPhases(patches []*model.Patch, phases []phase) (ordered []*model.Patch) {
	for _, ph := range phases {
		for _, patch := range patches {
			if ph.selects(patch) {
				ordered = append(ordered, patch)
			}
		}
	}
	return ordered
}

// pass is one application of patches to a resource.
type pass struct {
	context    networking.EnvoyFilter_PatchContext
	maxProgram int
	configs    map[*anypb.Any]proto.Message // decoded once for all patches
	decoded    []*anypb.Any                 // in this order: a nested typed_config follows its container

	// checked passes validate the messages that each patch touches, and not the resource after each patch: their cost
	// grows with the patches alone.
	checked bool
	undoes  []func() // take back the changes of the current patch
	problem string   // why Envoy would refuse the result of the current patch
}

// step is an application of a patch to a resource.
type step struct {
	*model.Patch
	*pass

	matched      bool
	mergeProblem string // why a matching patch changed no filter
	weakens      bool   // the enforcement of security
}

type namedMessage interface {
	proto.Message
	GetName() string
}

// application applies patches to copies of a resource.
type application[M namedMessage] struct {
	*Patcher
	resource M
	patches  []*model.Patch
	patch    func(*step, M) (keep bool)
	routes   map[string]bool // that the unpatched resource requests
	guarding bool            // leaves out patches that bypass policies

	// The result of the last run.
	patched M
	keep    bool
	steps   []*step
}

// apply patches a copy of a resource, and returns it. keep is false if a patch removes the resource. Envoy would
// refuse the whole resource for one bad patch, so patches after which it would refuse the result are left out.
func apply[M namedMessage](
	patcher *Patcher, resource M, phases []phase, patch func(*step, M) (keep bool),
) (patched M, keep bool) {
	patching := &application[M]{
		Patcher: patcher, resource: resource, patches: inPhases(patcher.patches, phases), patch: patch,
	}
	if len(patching.patches) == 0 {
		return resource, true
	}
	patching.routes = requestedRoutes(resource)
	reason := patching.runChecked()
	patching.guarding = patcher.guards && mayBypass(patching.steps, resource, patching.patched, patching.keep)
	if patching.guarding {
		reason = patching.runChecked()
		patching.guarding = false
	}
	if reason != "" { // Envoy would refuse the unpatched resource, too
		for _, current := range patching.steps {
			if current.matched {
				patching.findings.Note(current.Place, "%s", reason)
			}
		}
		return resource, true
	}
	patching.report(patching.measure())
	return patching.patched, patching.keep
}

// runChecked validates each patch only if the result of all together is invalid: that costs more.
func (a *application[M]) runChecked() (why string) {
	unobserved := func(*step) {}
	if a.run(false, unobserved) == "" {
		return ""
	}
	return a.run(true, unobserved)
}

// run applies the patches to a copy of the resource, and says why Envoy would refuse the result. observe gets each
// applied step.
func (a *application[M]) run(checked bool, observe func(*step)) (why string) {
	var guard guard[M]
	pass := &pass{
		context: a.context, maxProgram: a.maxProgram, checked: checked, configs: make(map[*anypb.Any]proto.Message),
	}
	a.patched, a.keep, a.steps = proto.CloneOf(a.resource), true, nil
	for i := 0; a.keep && i < len(a.patches); i++ {
		current := &step{Patch: a.patches[i], pass: pass}
		pass.undoes, pass.problem = nil, ""
		if a.guarding && !guard.save(current, a.patched) {
			a.findings.Note(current.Place, "%s", rootOnly)
			continue
		}
		a.keep = a.patch(current, a.patched)
		if a.patched.GetName() != a.resource.GetName() {
			pass.problem = a.resource.GetName() + " cannot be renamed"
		}
		if checked && current.matched && current.Value != nil && pass.problem == "" {
			pass.problem = unserved(current.Value, a.routes)
		}
		if checked && a.keep && pass.problem != "" {
			pass.takeBack()
			a.findings.Note(current.Place, "%s", pass.problem)
			continue
		}
		if a.guarding && guard.bypassed(current, a.patched, a.keep) {
			a.patched, a.keep = guard.before, true
			a.findings.Note(current.Place, "%s", rootOnly)
			continue
		}
		a.steps = append(a.steps, current)
		observe(current)
	}
	pass.flush()
	if listener, ok := any(a.patched).(*listenerv3.Listener); ok {
		dropEmpty(listener)
	}
	switch {
	case !a.keep || !slices.ContainsFunc(a.steps, func(current *step) bool { return current.matched }):
		return ""
	case a.patched.GetName() != a.resource.GetName():
		return pass.problem
	}
	return cmp.Or(refused(a.patched, a.maxProgram), unserved(a.patched, a.routes))
}

// measure reports whether the result enforces less than the resource, and if so runs again to find the steps that
// weaken it.
func (a *application[M]) measure() (weaker bool) {
	protected := protectionBy(a.resource)
	if !a.keep || !protectionBy(a.patched).lessThan(protected) {
		return false
	}
	a.patches = a.patches[:0]
	for _, s := range a.steps {
		a.patches = append(a.patches, s.Patch)
	}
	remaining := maxMeasured
	a.run(false, func(s *step) { protected = s.measure(protected, a.patched, &remaining) })
	return true
}

// report notes for each step whether it had an effect, and whether it weakens security.
func (a *application[M]) report(weaker bool) {
	for _, step := range a.steps {
		if step.mergeProblem != "" {
			a.findings.Note(step.Place, "%s", step.mergeProblem)
		}
		if step.matched {
			a.findings.Applied(step.Place)
		}
		if weaker && step.weakens || a.keep && step.matched && step.Value != nil && switchesOff(step.Value) {
			a.findings.Warn(step.Place, "it changes the enforcement of security, as with istiod: requests or connections "+
				"that were refused may pass")
		}
	}
}

// maxMeasured limits the measurements of the effect on security for each resource, because each measurement reads
// the resource. Further patches that can weaken security are reported unmeasured.
const maxMeasured = 64

// measure compares the protection before and after the step, sets weakens, and returns the latter. It measures only if
// some measurements remain.
func (s *step) measure(before protection, patched proto.Message, remaining *int) protection {
	if !s.matched || !s.canWeaken() {
		return before
	}
	if *remaining--; *remaining < 0 {
		s.weakens = true
		return before
	}
	s.flush()
	after := protectionBy(patched)
	s.weakens = after.lessThan(before)
	return after
}

// canWeaken reports whether the patch may remove or change security filters, or add a filter chain without them.
func (s *step) canWeaken() bool {
	return !slices.Contains(inserting, s.Operation) || s.ApplyTo == networking.EnvoyFilter_FILTER_CHAIN
}

// onUndo adds a function that takes back a change of the current patch.
func (p *pass) onUndo(undo func()) {
	if p.checked {
		p.undoes = append(p.undoes, undo)
	}
}

// takeBack undoes the changes of the current patch.
func (p *pass) takeBack() {
	for _, undo := range slices.Backward(p.undoes) {
		undo()
	}
}

// check validates a message that the current patch touched.
func (p *pass) check(problem func() (why string)) {
	if p.checked && p.problem == "" {
		p.problem = problem()
	}
}

// config decodes a typed_config, which flush writes back. It returns nil for an unknown type.
func (p *pass) config(encoded *anypb.Any) proto.Message {
	message := p.configs[encoded]
	if message == nil && encoded != nil {
		if message, _ = encoded.UnmarshalNew(); message != nil {
			p.configs[encoded], p.decoded = message, append(p.decoded, encoded)
		}
	}
	return message
}

// flush encodes the decoded typed_configs.
func (p *pass) flush() {
	for _, a := range slices.Backward(p.decoded) {
		a.Value = model.MustMarshal(p.configs[a])
	}
	clear(p.configs)
	p.decoded = nil
}

// edit applies the patch to a list. named reports that the patch names elements; matches selects the elements; merges
// merges into an element, by s.merge if it is nil. As with istiod, only some operations need a named element.
func edit[E proto.Message](current *step, list *[]E, named bool, matches func(E) bool, merges func(E)) {
	value := func() E {
		current.matched = true
		element := proto.Clone(current.Value).(E)
		current.check(func() string { return refused(element, current.maxProgram) })
		return element
	}
	i, position := slices.IndexFunc(*list, matches), -1
	switch current.Operation {
	case networking.EnvoyFilter_Patch_ADD:
		position = len(*list)
	case networking.EnvoyFilter_Patch_INSERT_FIRST:
		if i >= 0 || !named || current.ApplyTo != networking.EnvoyFilter_HTTP_ROUTE {
			position = 0
		}
	case networking.EnvoyFilter_Patch_INSERT_BEFORE:
		if position = i; !named {
			position = 0
		}
	case networking.EnvoyFilter_Patch_INSERT_AFTER:
		if !named {
			position = len(*list)
		} else if i >= 0 {
			position = i + 1
		}
	case networking.EnvoyFilter_Patch_REPLACE:
		replaceEvery := current.ApplyTo == networking.EnvoyFilter_VIRTUAL_HOST
		for i, element := range *list {
			if (named || replaceEvery) && matches(element) {
				current.onUndo(func() { (*list)[i] = element })
				if (*list)[i] = value(); !replaceEvery {
					break
				}
			}
		}
	case networking.EnvoyFilter_Patch_REMOVE:
		if i >= 0 && (named || !strings.HasSuffix(current.ApplyTo.String(), "_FILTER")) {
			before := slices.Clone(*list)
			current.onUndo(func() { *list = before })
			*list, current.matched = slices.DeleteFunc(*list, matches), true
		}
	case networking.EnvoyFilter_Patch_MERGE:
		for _, element := range *list {
			switch {
			case !matches(element):
			case merges != nil:
				merges(element)
			default:
				current.merge(element)
			}
		}
	}
	if position >= 0 {
		*list = slices.Insert(*list, position, value())
		current.onUndo(func() { *list = slices.Delete(*list, position, position+1) })
	}
}

// merge merges the value of the patch into a message. A typed_config that the value changes must not be decoded at
// that time: see flush.
func (s *step) merge(m proto.Message) { s.mergeValue(m, s.Value) }

// mergeValue merges a value into a message, and appends to its lists.
func (s *step) mergeValue(message, value proto.Message) {
	s.matched = true
	if !s.checked {
		merge.Merge(message, value)
		return
	}
	into, from, part := message.ProtoReflect(), value.ProtoReflect(), message.ProtoReflect().New()
	from.Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		s.saveField(into, field)
		return true
	})
	merge.Merge(message, value)
	// keepAdded drops the elements from before the merge.
	keepAdded := func(field protoreflect.FieldDescriptor, value protoreflect.Value) {
		elements, addition := value.List(), part.NewField(field).List()
		for i := elements.Len() - from.Get(field).List().Len(); i < elements.Len(); i++ {
			addition.Append(elements.Get(i))
		}
		part.Set(field, protoreflect.ValueOfList(addition))
	}
	into.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if part.Set(field, value); slices.Contains(unlimitedLists, field.Name()) {
			keepAdded(field, value)
		}
		return true
	})
	s.check(func() string {
		if reason := invalid(part.Interface()); reason != "" {
			return reason
		}
		into.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
			if field.IsList() {
				keepAdded(field, value)
			}
			return true
		})
		return cmp.Or(refusedPart(part.Interface(), s.maxProgram), misplaced(message))
	})
}

// unlimitedLists have no limits on their length, so that their elements are validated one by one.
var unlimitedLists = []protoreflect.Name{"filter_chains", "http_filters", "virtual_hosts", "routes"}

// saveField makes takeBack restore a field that a merge is about to change.
func (s *step) saveField(message protoreflect.Message, field protoreflect.FieldDescriptor) {
	if choice := field.ContainingOneof(); choice != nil {
		if current := message.WhichOneof(choice); current != nil && current != field {
			value := message.Get(current)
			s.onUndo(func() { message.Set(current, value) })
			return
		}
	}
	value := message.Get(field)
	switch {
	case !message.Has(field):
		s.onUndo(func() { message.Clear(field) })
	case field.IsList():
		n := value.List().Len()
		s.onUndo(func() { message.Mutable(field).List().Truncate(n) })
	case field.IsMap() || field.Message() != nil:
		before := message.New() // holds a copy of the field
		before.Set(field, value)
		value = proto.Clone(before.Interface()).ProtoReflect().Get(field)
		s.onUndo(func() { message.Set(field, value) })
	default:
		s.onUndo(func() { message.Set(field, value) })
	}
}

// mergeConfig merges the typed_config of the patch into that of an element, and reports whether it succeeded.
func (s *step) mergeConfig(config, addition *anypb.Any) bool {
	switch {
	case config == nil:
		s.mergeProblem = "the filter has no typed_config to merge into"
		return false
	case addition != nil && config.GetTypeUrl() != addition.GetTypeUrl():
		s.mergeProblem = "a typed_config of type " + addition.GetTypeUrl() + " cannot be merged into one of type " +
			config.GetTypeUrl()
		return false
	case addition != nil:
		message := s.config(config)
		from, err := addition.UnmarshalNew()
		if err != nil || message == nil { // all types are known
			return false
		}
		s.mergeValue(message, from)
	}
	s.matched = true
	return true
}
