// Package extend changes resources for Envoys as EnvoyFilters and WasmPlugins ask, as istiod 1.27 does. It is pure.
//
// A patch is left out, and a finding names it and the reason, if its value is no message of Envoy's or Envoy would refuse the result. All
// other patches are applied, also one that disarms a filter that enforces security, with a finding.
package extend
