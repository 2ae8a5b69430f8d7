package resource

import (
	"errors"
	"fmt"

	extensions "istio.io/api/extensions/v1alpha1"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/config/validation"
)

// validateTrafficExtension stands in for Istio's own validator, which the release that is linked in does not have: the
// kind is newer. A TrafficExtension is a WasmPlugin that can hold Lua instead, so what they share is left to the
// validator of that; the rest follows the rules in the CRD of Istio 1.31.
func validateTrafficExtension(cfg config.Config) (validation.Warning, error) {
	spec, ok := cfg.Spec.(*extensions.TrafficExtension)
	if !ok {
		return nil, fmt.Errorf("spec is a %T", cfg.Spec)
	}
	like := &extensions.WasmPlugin{Selector: spec.Selector, TargetRefs: spec.TargetRefs}
	for _, m := range spec.Match {
		like.Match = append(like.Match, &extensions.WasmPlugin_TrafficSelector{Mode: m.GetMode(), Ports: m.GetPorts()})
	}
	var own error
	switch {
	case spec.GetWasm() != nil:
		w := spec.GetWasm()
		like.Url, like.Sha256, like.ImagePullSecret, like.PluginName, like.VmConfig = w.Url, w.Sha256, w.ImagePullSecret, w.PluginName, w.VmConfig
	case spec.GetLua() != nil:
		like.Url = "file:///none" // for the validator, which wants one
		switch size := len(spec.GetLua().InlineCode); {
		case size == 0:
			own = errors.New("lua.inlineCode is missing")
		case size > 64<<10:
			own = fmt.Errorf("lua.inlineCode is longer than 64 KiB (%d bytes)", size)
		}
	default:
		own = errors.New("exactly one of wasm and lua must be set")
		like.Url = "file:///none"
	}
	cfg.Spec = like
	warning, err := validation.ValidateWasmPlugin(cfg)
	switch {
	case err == nil:
		err = own
	case own != nil:
		err = fmt.Errorf("%w; %w", own, err)
	}
	return warning, err
}
