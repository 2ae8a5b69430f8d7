package guard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"tributary/resource"
)

// Settings say what is a mass loss. What is zero, or nil, has its default. docs/failing-safely.md has the rules as a table.
//
// A loss is an object deleted, or an endpoint that a ServiceEntry has no longer. Losses are summed over a window, so that
// a directory that is removed file by file is one loss; what comes back meanwhile is none. A loss is held if it is more
// than Share of what there would be without it and more than Min: by the number of objects of a kind, of objects in all, or
// of endpoints. It is also held, whatever Share and Min are, if it leaves nothing of a kind that had two objects or more, or
// nothing at all of two or more.
type Settings struct {
	Off     bool          // lets everything through
	Share   float64       // of all, from 0 to 1; default 0.5
	Min     *int          // as many may always be lost; default 10
	Window  time.Duration // default 1 minute
	HoldFor time.Duration // after which a hold ends by itself; default: never, a person decides
}

// The defaults of Settings.
const (
	DefaultShare  = 0.5
	DefaultMin    = 10
	DefaultWindow = time.Minute
)

// few is how many objects, of a kind or in all, make the loss of all of them one that is held.
const few = 2

func (s Settings) withDefaults() Settings {
	if s.Min == nil {
		s.Min = new(DefaultMin)
	}
	s.Share, s.Window = cmp.Or(s.Share, DefaultShare), cmp.Or(s.Window, DefaultWindow)
	return s
}

// tally counts objects by kind and in all, and endpoints. The zero value is nothing.
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

// plus returns the sum of both.
func (t tally) plus(o tally) tally {
	sum := tally{maps.Clone(t.kinds), t.objects, t.endpoints + o.endpoints}
	for kind, n := range o.kinds {
		sum.add(kind, n, 0)
	}
	return sum
}

// question is a loss to be judged.
type question struct {
	now  tally // what would be lost now
	past tally // what was let through shortly before, and has not come back
	has  tally // what there is, with what would be lost now
	new  tally // what comes in its place, in the same commit
	most tally // objects that there were at one time of the window
}

// tooMuch says why a loss is to be held, or nothing. Only that is judged of which something would be lost now.
func (s Settings) tooMuch(q question) string {
	lost, had := q.now.plus(q.past), q.has.plus(q.past)
	within := func(what string, lost, of int) string {
		if lost <= *s.Min || float64(lost) <= s.Share*float64(of) {
			return ""
		}
		return fmt.Sprintf("%d of %d %s would go within %s, which is more than %d and more than %g %%",
			lost, of, what, s.Window, *s.Min, s.Share*100)
	}
	kinds := slices.Sorted(maps.Keys(q.now.kinds))
	for _, kind := range kinds {
		left := q.has.kinds[kind] - q.now.kinds[kind] + q.new.kinds[kind]
		if left == 0 && q.most.kinds[kind] >= few {
			return fmt.Sprintf("all %d objects of kind %s would go within %s", lost.kinds[kind], kind, s.Window)
		}
	}
	if q.now.objects > 0 && q.has.objects-q.now.objects+q.new.objects == 0 && q.most.objects >= few {
		return fmt.Sprintf("all %d objects would go within %s", lost.objects, s.Window)
	}
	if q.now.objects > 0 {
		if why := within("objects", lost.objects, had.objects); why != "" {
			return why
		}
	}
	for _, kind := range kinds {
		if why := within("objects of kind "+string(kind), lost.kinds[kind], had.kinds[kind]); why != "" {
			return why
		}
	}
	if q.now.endpoints > 0 {
		return within("endpoints", lost.endpoints-q.new.endpoints, had.endpoints) // a service may have got another name
	}
	return ""
}
