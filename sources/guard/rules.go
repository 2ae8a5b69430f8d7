package guard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"tributary/resource"
)

// Settings define a mass loss. Zero and nil mean the default. docs/failing-safely.md has the rules as a table.
//
// A loss is a deleted object, or an endpoint that a ServiceEntry no longer has. Losses are summed over a window, so
// that a directory that is removed file by file is one loss; an object that comes back meanwhile does not count. A loss
// is held if it exceeds both Min and Share of the previous number: of the objects of a kind, of all objects, or of
// endpoints. Independent of Share and Min, it is also held if it removes all of minWipeout or more objects, of a kind
// or in all.
type Settings struct {
	Off     bool          // everything passes
	Share   float64       // from 0 to 1; default 0.5
	Min     *int          // that many losses always pass; default 10
	Window  time.Duration // default 1 minute
	HoldFor time.Duration // after which a hold ends by itself; default: never
}

// The defaults of Settings.
const (
	DefaultShare  = 0.5
	DefaultMin    = 10
	DefaultWindow = time.Minute
)

// minWipeout: losing all of this many objects, or more, is held.
const minWipeout = 2

func (s Settings) withDefaults() Settings {
	if s.Min == nil {
		s.Min = new(DefaultMin)
	}
	s.Share, s.Window = cmp.Or(s.Share, DefaultShare), cmp.Or(s.Window, DefaultWindow)
	return s
}

// tally counts objects, by kind and in all, and endpoints.
type tally struct {
	kinds     map[resource.Kind]int
	objects   int
	endpoints int
}

func (t *tally) add(kind resource.Kind, objects, endpoints int) {
	t.objects += objects
	t.endpoints += endpoints
	if objects == 0 {
		return
	}
	if t.kinds == nil {
		t.kinds = make(map[resource.Kind]int)
	}
	if t.kinds[kind] += objects; t.kinds[kind] == 0 {
		delete(t.kinds, kind)
	}
}

// clone returns a copy that can be changed.
func (t tally) clone() tally {
	kinds := make(map[resource.Kind]int, len(t.kinds))
	maps.Copy(kinds, t.kinds)
	return tally{kinds, t.objects, t.endpoints}
}

// plus returns the sum of both, or with the sign -1 the difference.
func (t tally) plus(o tally, sign int) tally {
	sum := tally{maps.Clone(t.kinds), t.objects, t.endpoints + sign*o.endpoints}
	for kind, n := range o.kinds {
		sum.add(kind, sign*n, 0)
	}
	return sum
}

// lossCheck has the numbers that decide whether a loss is held.
type lossCheck struct {
	losing       tally // by the commit
	lostRecently tally // before it, within the window, and not back
	present      tally // before the commit
	arriving     tally // new objects of the same commit
	peak         tally // most objects within the window
}

// exceeded returns the reason to hold a loss, or "" if it passes. It considers only kinds and totals that the commit
// itself reduces.
func (s Settings) exceeded(check lossCheck) string {
	lost, total := check.losing.plus(check.lostRecently, 1), check.present.plus(check.lostRecently, 1)
	exceeds := func(counted string, lost, present int) string {
		if lost <= *s.Min || float64(lost) <= s.Share*float64(present) {
			return ""
		}
		return fmt.Sprintf("%d of %d %s would go within %s, which is more than %d and more than %g %%",
			lost, present, counted, s.Window, *s.Min, s.Share*100)
	}
	kinds := slices.Sorted(maps.Keys(check.losing.kinds))
	for _, kind := range kinds {
		remaining := check.present.kinds[kind] - check.losing.kinds[kind] + check.arriving.kinds[kind]
		if remaining == 0 && check.peak.kinds[kind] >= minWipeout {
			return fmt.Sprintf("all %d objects of kind %s would go within %s", lost.kinds[kind], kind, s.Window)
		}
	}
	if check.losing.objects > 0 && check.present.objects-check.losing.objects+check.arriving.objects == 0 &&
		check.peak.objects >= minWipeout {
		return fmt.Sprintf("all %d objects would go within %s", lost.objects, s.Window)
	}
	if check.losing.objects > 0 {
		if reason := exceeds("objects", lost.objects, total.objects); reason != "" {
			return reason
		}
	}
	for _, kind := range kinds {
		if reason := exceeds("objects of kind "+string(kind), lost.kinds[kind], total.kinds[kind]); reason != "" {
			return reason
		}
	}
	if check.losing.endpoints > 0 {
		// a service may have been renamed
		return exceeds("endpoints", lost.endpoints-check.arriving.endpoints, total.endpoints)
	}
	return ""
}
