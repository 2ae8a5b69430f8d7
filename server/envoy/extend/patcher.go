package extend

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// regexCheck says why clients would refuse a regular expression, or returns nothing.
type regexCheck = func(re string) string

// Patcher applies the patches of a context to resources.
type Patcher struct {
	list    []*model.Patch
	context networking.EnvoyFilter_PatchContext
	regex   regexCheck

	Applied  model.Findings // the places of patches that changed something, without a reason
	Findings model.Findings
}

// New returns a Patcher with those patches of an extension, which may be nil, that are for a context and apply to some things. regex says
// why the clients would refuse a regular expression, or returns nothing.
func New(e *model.Extension, context networking.EnvoyFilter_PatchContext, to []networking.EnvoyFilter_ApplyTo, regex regexCheck,
) *Patcher {
	p := &Patcher{context: context, regex: regex}
	if e == nil {
		return p
	}
	for _, patch := range e.Patches {
		if patch.In(context) && slices.Contains(to, patch.ApplyTo) {
			p.list = append(p.list, patch)
		}
	}
	return p
}

// Idle says whether the patcher has no patches.
func (p *Patcher) Idle() bool { return len(p.list) == 0 }

// attempt is one application of patches to a resource.
type attempt struct {
	list   []*model.Patch
	used   map[*model.Patch]bool
	failed map[*model.Patch]string // why they did not change something that they match
}

// to yields the patches that apply to something, in order.
func (a *attempt) to(to networking.EnvoyFilter_ApplyTo) func(func(*model.Patch) bool) {
	return func(yield func(*model.Patch) bool) {
		for _, p := range a.list {
			if p.ApplyTo == to && !yield(p) {
				return
			}
		}
	}
}

// apply patches a copy of a resource, and returns it, or nothing if the resource is removed. Patches with which Envoy would refuse the
// result are left out.
func apply[M proto.Message](p *Patcher, m M, patch func(*attempt, M) (keep bool), refused func(was, now M, regex regexCheck) string,
) (now M, keep bool) {
	if p.Idle() {
		return m, true
	}
	try := func(list []*model.Patch) (a *attempt, now M, keep bool, why string) {
		a = &attempt{list: list, used: make(map[*model.Patch]bool), failed: make(map[*model.Patch]string)}
		now = proto.CloneOf(m)
		if keep = patch(a, now); keep && len(a.used) > 0 {
			why = refused(m, now, p.regex)
		}
		return a, now, keep, why
	}
	a, now, keep, why := try(p.list)
	if why != "" && refused(m, m, p.regex) == "" {
		a, now, keep = blame(p, a.list, why, try)
	}
	if len(a.used) == 0 {
		now = m
	}
	for _, patch := range a.list {
		if a.used[patch] {
			p.Applied = append(p.Applied, model.Finding{Place: patch.Place})
		}
		if why := a.failed[patch]; why != "" {
			p.Findings.Note(patch.Place, "%s", why)
		}
	}
	if keep && len(a.used) > 0 {
		p.noteDisarmed(a, m, now, func(list []*model.Patch) proto.Message {
			_, now, _, _ := try(list)
			return now
		})
	}
	return now, keep
}

// noteDisarmed names the patches because of which a resource is less secure than it was.
func (p *Patcher) noteDisarmed(a *attempt, was, now proto.Message, with func([]*model.Patch) proto.Message) {
	before, _ := was.(*listenerv3.Listener)
	after, _ := now.(*listenerv3.Listener)
	weaker := disarmed(before, after)
	for i, patch := range a.list {
		if !a.used[patch] {
			continue
		}
		off := patch.Value != nil && switchesOff(patch.Value)
		if weaker && !off {
			other, _ := with(slices.Delete(slices.Clone(a.list), i, i+1)).(*listenerv3.Listener)
			off = !disarmed(before, other)
		}
		if off {
			p.Findings.Warn(patch.Place, "what enforces security is changed by it, as with istiod: requests or connections that were refused "+
				"may pass")
		}
	}
}

// blame applies patches without those because of which the result is refused: the last one without which it is not, or else each that is
// refused together with those before it.
func blame[M proto.Message](p *Patcher, list []*model.Patch, why string, try func([]*model.Patch) (*attempt, M, bool, string)) (*attempt, M,
	bool,
) {
	for i, patch := range slices.Backward(list) {
		if a, now, keep, still := try(slices.Delete(slices.Clone(list), i, i+1)); still == "" {
			p.Findings.Note(patch.Place, "%s", why)
			return a, now, keep
		}
	}
	var good []*model.Patch
	for _, patch := range list {
		more := append(slices.Clip(good), patch)
		if _, _, _, why := try(more); why != "" {
			p.Findings.Note(patch.Place, "%s", why)
			continue
		}
		good = more
	}
	a, now, keep, _ := try(good)
	return a, now, keep
}
