package model

import (
	"google.golang.org/protobuf/proto"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Patch is a decoded, immutable patch of an EnvoyFilter.
type Patch struct {
	Place
	ApplyTo   networking.EnvoyFilter_ApplyTo
	Operation networking.EnvoyFilter_Patch_Operation
	Match     *networking.EnvoyFilter_EnvoyConfigObjectMatch // may be nil
	Value     proto.Message                                  // nil if the operation needs none
	From      string                                         // equal for equal patches
}

// InContext reports whether the patch is for a context.
func (p *Patch) InContext(context networking.EnvoyFilter_PatchContext) bool {
	return p.Match.GetContext() == networking.EnvoyFilter_ANY || p.Match.GetContext() == context
}

// Plugin is the immutable filter of a WasmPlugin.
type Plugin struct {
	Key    resource.Key // of the WasmPlugin
	Spec   *extensionsv1alpha1.WasmPlugin
	Filter proto.Message // an HttpFilter, or a Filter of connections
}

// Extension has the immutable changes of EnvoyFilters and WasmPlugins for clients of a profile; nil has none.
type Extension struct {
	Patches    []*Patch  // in the order of their application
	Plugins    []*Plugin // in the order of their filters in a phase
	MaxProgram int       // the largest program of a regular expression
	Guards     bool      // only EnvoyFilters of the root namespace may bypass policies; constant in a process

	Objects  []resource.Key // behind it
	Findings Findings
	From     string // equal for equal content
}

// Equal reports whether both make the same changes. Either may be nil.
func (e *Extension) Equal(next *Extension) bool {
	return e == next || e != nil && next != nil && e.From == next.From
}
