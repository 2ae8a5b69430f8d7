package provider

import (
	"cmp"
	"maps"
	"slices"
)

// endpoint identifies a provider: two registrations with the same endpoint are one.
type endpoint struct {
	id       ID
	protocol string
	host     string
	port     int
	path     string
}

func (p Provider) endpoint() endpoint { return endpoint{p.ID, p.Protocol, p.Host, p.Port, p.Path} }

// Merge returns each provider once, in a stable order. Of several registrations at one level the newest wins, verified
// ones before unverified ones: after a crash the old one stays until its session ends. The parameters of both levels
// are merged; where both have one, that of the newer registration wins. Of equally old registrations the first wins.
func Merge(lists ...[]Provider) []Provider {
	newest := map[endpoint][]Provider{} // of each level
	for _, provider := range slices.Concat(lists...) {
		endpoint := provider.endpoint()
		same := slices.IndexFunc(newest[endpoint], func(newer Provider) bool { return newer.Levels == provider.Levels })
		switch {
		case same < 0:
			newest[endpoint] = append(newest[endpoint], provider)
		case provider.supersedes(newest[endpoint][same]):
			newest[endpoint][same] = provider
		}
	}
	merged := make([]Provider, 0, len(newest))
	for _, levels := range newest {
		slices.SortStableFunc(levels, func(a, b Provider) int { return cmp.Compare(b.Timestamp, a.Timestamp) })
		provider := levels[0]
		for _, older := range levels[1:] {
			provider = provider.fillFrom(older)
		}
		merged = append(merged, provider)
	}
	slices.SortFunc(merged, func(a, b Provider) int {
		return cmp.Or(a.Compare(b.ID), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Host, b.Host),
			cmp.Compare(a.Port, b.Port), cmp.Compare(a.Path, b.Path))
	})
	return merged
}

// supersedes reports whether p wins over another registration at the same level.
func (p Provider) supersedes(provider Provider) bool {
	if p.Unverified != provider.Unverified {
		return provider.Unverified
	}
	return p.Timestamp > provider.Timestamp
}

// fillFrom returns p with the parameters that only an older registration at another level has.
func (p Provider) fillFrom(older Provider) Provider {
	params := maps.Clone(p.Params)
	if p.weightUnset() {
		delete(params, "weight")
	}
	_, disabled := params["disabled"]
	_, enabled := params["enabled"]
	for key, value := range older.Params {
		_, isSet := params[key]
		switch {
		case isSet, key == "weight" && older.weightUnset():
		case (key == "disabled" || key == "enabled") && (disabled || enabled): // the two mean the same
		default:
			if params == nil {
				params = map[string]string{}
			}
			params[key] = value
		}
	}
	p.SwitchedOff = p.SwitchedOff || older.SwitchedOff && !disabled && !enabled
	p.Params, p.Levels, p.Unverified = params, p.Levels|older.Levels, p.Unverified && older.Unverified
	return p
}
