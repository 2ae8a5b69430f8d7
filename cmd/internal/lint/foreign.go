package lint

import (
	"slices"

	"tributary/resource"
	"tributary/sources"
)

// foreignNamed has objects of other APIs named one by one; what that means is for the linter to say.
const foreignNamed = "error"

// foreignSeverity is what the setting foreignKinds of a source makes of objects of other APIs.
func foreignSeverity(setting string) Severity {
	switch setting {
	case "error":
		return Error
	case "warn":
		return Warning
	default:
		return Note
	}
}

// alsoOfOthers are kinds of Istio whose names others use as well.
var alsoOfOthers = []resource.Kind{
	resource.Gateway, resource.Sidecar, resource.AuthorizationPolicy, resource.Telemetry, resource.ProxyConfig, resource.WasmPlugin,
}

// foreign notes an object of another API. One whose kind only Istio has was hardly meant to be passed over.
func (l *Linter) foreign(terms Terms, r sources.Reject) {
	severity, meant := terms.Foreign, ""
	if schema, ok := resource.SchemaOf(r.Key.Kind); ok && !slices.Contains(alsoOfOthers, r.Key.Kind) {
		meant = "; did you mean " + schema.APIVersion() + "?"
		if severity != Error {
			severity = Warning
		}
	}
	if severity == "" {
		severity = Note
	}
	if severity != Error {
		l.Foreign++
	}
	for _, e := range resource.ErrorsIn(r.Err) {
		l.find(severity, Foreign, r.Key, e.Origin.Place, e.Err.Error()+meant)
	}
}
