package model

import (
	"google.golang.org/protobuf/proto"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Patch is one of an EnvoyFilter's, decoded. It is not modified once it was made.
type Patch struct {
	Place
	ApplyTo   networking.EnvoyFilter_ApplyTo
	Operation networking.EnvoyFilter_Patch_Operation
	Match     *networking.EnvoyFilter_EnvoyConfigObjectMatch // may be nil
	Value     proto.Message                                  // nil if the operation needs none
	From      string                                         // equal for what is equal
}

// In says whether the patch is for a context.
func (p *Patch) In(context networking.EnvoyFilter_PatchContext) bool {
	return p.Match.GetContext() == networking.EnvoyFilter_ANY || p.Match.GetContext() == context
}

// Plugin is the filter of a WasmPlugin. It is not modified once it was made.
type Plugin struct {
	Key    resource.Key // of the WasmPlugin
	Spec   *extensionsv1alpha1.WasmPlugin
	Filter proto.Message // an HttpFilter, or a Filter of connections
}

// Extension is what EnvoyFilters and WasmPlugins change for clients of a profile. It is not modified once it was made; nil changes nothing.
type Extension struct {
	Patches    []*Patch  // in the order in which they are applied
	Plugins    []*Plugin // in the order of their filters in a phase
	MaxProgram int       // how large the regular expressions of these clients may be
	Guards     bool      // only EnvoyFilters of the root namespace may bypass policies; the same for all of a process

	Objects  []resource.Key // of which it was made
	Findings Findings
	From     string // equal for what is equal
}

// Equal says whether both change the same. Either may be nil.
func (e *Extension) Equal(other *Extension) bool {
	return e == other || e != nil && other != nil && e.From == other.From
}
