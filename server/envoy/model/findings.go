package model

import (
	"cmp"
	"fmt"
	"slices"

	"tributary/resource"
)

// Place is an object, or a part of one.
type Place struct {
	Of    resource.Key
	Field string // its path; empty for the whole
}

// In returns a part of the place.
func (p Place) In(format string, args ...any) Place {
	field := fmt.Sprintf(format, args...)
	if p.Field != "" {
		field = p.Field + "." + field
	}
	return Place{p.Of, field}
}

// Finding is something that an object says and that has no effect on clients, or not the one that was meant, and what happens instead.
type Finding struct {
	Place
	Why string // empty for a patch that has its effect, of which nothing is to be said
	Has bool   // it has its effect, of which something is to be said
}

func (f Finding) String() string {
	if f.Has {
		return f.Field + ": " + f.Why
	}
	if f.Field == "" {
		return "it has no effect on Envoys: " + f.Why
	}
	return f.Field + " has no effect on Envoys: " + f.Why
}

// Compare orders findings by object, field and reason.
func (f Finding) Compare(o Finding) int {
	return cmp.Or(f.Of.Compare(o.Of), cmp.Compare(f.Field, o.Field), cmp.Compare(f.Why, o.Why))
}

// Findings are what was found while something was translated.
type Findings []Finding

// Note adds a finding at a place.
func (f *Findings) Note(at Place, why string, args ...any) {
	*f = append(*f, Finding{Place: at, Why: fmt.Sprintf(why, args...)})
}

// Warn adds a finding about something that has its effect.
func (f *Findings) Warn(at Place, why string, args ...any) {
	*f = append(*f, Finding{Place: at, Why: fmt.Sprintf(why, args...), Has: true})
}

// Applied adds a patch that changes something.
func (f *Findings) Applied(at Place) { *f = append(*f, Finding{Place: at}) }

// Sorted returns each once, in order.
func (f Findings) Sorted() Findings {
	slices.SortFunc(f, Finding.Compare)
	return slices.Compact(f)
}
