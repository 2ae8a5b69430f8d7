// Package extend applies EnvoyFilters and WasmPlugins to the resources of Envoys, as istiod 1.27 does. It is pure.
//
// Patches with an invalid value, and patches after which Envoy would refuse the result, are left out with a finding
// that names the reason. All other patches are applied. A patch that weakens a security filter is applied with a
// finding, or left out if model.Extension.Guards is set.
//
// extension.go selects and orders the patches of a profile, decode.go reads them. patcher.go applies them in phases,
// resource.go to each type of resource. check.go, script.go and wait.go find results that Envoy would refuse, guard.go
// those that weaken security. plugin.go translates WasmPlugins; fallback.go makes a listener instead of a rejected one.
package extend
