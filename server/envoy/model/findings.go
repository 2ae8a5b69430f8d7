package model

import (
	"cmp"
	"fmt"
	"slices"

	"tributary/resource"
)

// Place is an object, or a part of one.
type Place struct {
	Object resource.Key
	Field  string // its path; empty for the object itself
}

// PlaceIn returns a field of an object.
func PlaceIn(object resource.Key, field string, args ...any) Place {
	return Place{object, fmt.Sprintf(field, args...)}
}

// Subfield returns a part of the place.
func (p Place) Subfield(format string, args ...any) Place {
	field := fmt.Sprintf(format, args...)
	if p.Field != "" {
		field = p.Field + "." + field
	}
	return Place{p.Object, field}
}

// Finding is a part of an object that has no effect on clients, or an unintended one, and the behavior instead.
type Finding struct {
	Place
	Why       string // empty for an applied patch without a problem
	Effective bool   // it has its effect, with the warning in Why
}

func (f Finding) String() string {
	if f.Effective {
		return f.Field + ": " + f.Why
	}
	if f.Field == "" {
		return "it has no effect on Envoys: " + f.Why
	}
	return f.Field + " has no effect on Envoys: " + f.Why
}

// Compare orders findings by object, field and reason.
func (f Finding) Compare(o Finding) int {
	return cmp.Or(f.Object.Compare(o.Object), cmp.Compare(f.Field, o.Field), cmp.Compare(f.Why, o.Why))
}

// Findings are the findings of a translation.
type Findings []Finding

// Note adds a finding at a place.
func (f *Findings) Note(place Place, why string, args ...any) {
	*f = append(*f, Finding{Place: place, Why: fmt.Sprintf(why, args...)})
}

// Warn adds a finding about a part that has its effect, but needs attention.
func (f *Findings) Warn(place Place, why string, args ...any) {
	*f = append(*f, Finding{Place: place, Why: fmt.Sprintf(why, args...), Effective: true})
}

// Applied adds a patch that changes something.
func (f *Findings) Applied(place Place) { *f = append(*f, Finding{Place: place}) }

// Sorted returns the findings in order, without duplicates.
func (f Findings) Sorted() Findings {
	slices.SortFunc(f, Finding.Compare)
	return slices.Compact(f)
}
