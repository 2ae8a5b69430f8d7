package provider

import (
	"cmp"
	"maps"
	"slices"
)

// endpoint is what is at most once in a service: two registrations of it are one.
type endpoint struct {
	id       ID
	protocol string
	host     string
	port     int
	path     string
}

func (p Provider) endpoint() endpoint { return endpoint{p.ID, p.Protocol, p.Host, p.Port, p.Path} }

// Merge returns each provider once, in a stable order. Of several registrations at one level the newest counts: after a crash the old one
// and the new one are side by side until the old session ends. Of both levels it has the parameters that either says, and of what both say
// that of the newer one: one level may lack what the other one has. Of equally old registrations the first counts.
func Merge(all ...[]Provider) []Provider {
	newest := map[endpoint][]Provider{} // of each level
	for _, p := range slices.Concat(all...) {
		e := p.endpoint()
		same := slices.IndexFunc(newest[e], func(known Provider) bool { return known.Levels == p.Levels })
		switch {
		case same < 0:
			newest[e] = append(newest[e], p)
		case p.counts(newest[e][same]):
			newest[e][same] = p
		}
	}
	merged := make([]Provider, 0, len(newest))
	for _, levels := range newest {
		slices.SortStableFunc(levels, func(a, b Provider) int { return cmp.Compare(b.Timestamp, a.Timestamp) })
		p := levels[0]
		for _, older := range levels[1:] {
			p = p.completed(older)
		}
		merged = append(merged, p)
	}
	slices.SortFunc(merged, func(a, b Provider) int {
		return cmp.Or(a.Compare(b.ID), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Host, b.Host),
			cmp.Compare(a.Port, b.Port), cmp.Compare(a.Path, b.Path))
	})
	return merged
}

// counts reports whether of two registrations at one level p counts, and not the other one.
func (p Provider) counts(o Provider) bool {
	if p.Silent != o.Silent {
		return o.Silent
	}
	return p.Timestamp > o.Timestamp
}

// completed returns p with the parameters that only an older registration of it has, at another level.
func (p Provider) completed(older Provider) Provider {
	params := maps.Clone(p.Params)
	if p.silentOnWeight() {
		delete(params, "weight")
	}
	_, disabled := params["disabled"]
	_, enabled := params["enabled"]
	for key, value := range older.Params {
		_, said := params[key]
		switch {
		case said, key == "weight" && older.silentOnWeight():
		case (key == "disabled" || key == "enabled") && (disabled || enabled): // which say the same thing
		default:
			if params == nil {
				params = map[string]string{}
			}
			params[key] = value
		}
	}
	p.SwitchedOff = p.SwitchedOff || older.SwitchedOff && !disabled && !enabled
	p.Params, p.Levels, p.Silent = params, p.Levels|older.Levels, p.Silent && older.Silent
	return p
}
