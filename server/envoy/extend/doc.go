// Package extend changes resources for Envoys as EnvoyFilters and WasmPlugins ask, as istiod 1.27 does. It is pure.
//
// What a patch cannot change is left as it is, and a finding names the patch and the reason: a value that is no message of Envoy's, a result
// that Envoy would refuse. All other patches are applied. So is one that disarms a filter that enforces security, with a finding.
package extend
