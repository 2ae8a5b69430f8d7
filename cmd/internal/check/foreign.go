package check

import (
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

// foreign notes an object of another API.
func (l *Linter) foreign(terms Terms, r sources.Reject) {
	severity := terms.Foreign
	if severity == "" {
		severity = Note
	}
	if severity != Error {
		l.Foreign++
	}
	for _, e := range resource.ErrorsIn(r.Err) {
		l.find(severity, Foreign, r.Key, e.Origin.Place, e.Err.Error())
	}
}
