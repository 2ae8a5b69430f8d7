package envoy

import (
	"cmp"
	"slices"
	"time"

	"tributary/server/xds"
)

// docket has the complaints that are open. What a client rejects is not kept here but is asked of the server whenever it is looked at: it stays so until the
// client accepts something else, whatever else it says meanwhile, and so none is lost. An entry is just that there may be something to be found, when to look, and
// what was found to lead nowhere. Who has rejected something has an entry until it was looked at and there is nothing. A docket does nothing by itself and
// looks at no clock.
type docket struct {
	hearing time.Duration // after which a complaint is looked at: others have had time to answer
	open    map[complainant]*complaint
}

// complainant is one type on one stream.
type complainant struct {
	stream  uint64
	typeURL string
}

type complaint struct {
	said  uint64    // how often the client has said something since there is a complaint
	due   time.Time // when it is looked at; zero if not before the client says something
	heard bool      // just now
	waits bool      // for others to be heard
	past
}

// past is what was found of a complaint that leads nowhere as it is.
type past struct {
	about []xds.Resource // that were heard
	turn  uint64         // of the quarantine, then
	again time.Time      // when it is heard anew although nothing has changed; zero for never
}

// look is one at a complaint.
type look struct {
	complainant
	said uint64
	past past
}

// result is what came of a hearing.
type result struct {
	ended string
	past
}

func newDocket(hearing time.Duration) docket {
	return docket{hearing: hearing, open: make(map[complainant]*complaint)}
}

func (d *docket) isEmpty() bool { return len(d.open) == 0 }

// take notes that a client has said something, and reports whether there is something to be looked at earlier than before.
func (d *docket) take(who complainant, rejects bool, now time.Time) (earlier bool) {
	c := d.open[who]
	if c == nil {
		if !rejects {
			return false
		}
		c = &complaint{}
		d.open[who] = c
	}
	c.said++
	at := now.Add(d.hearing)
	if earlier = c.due.IsZero() || at.Before(c.due); earlier {
		c.due = at
	}
	return earlier
}

// due returns what is to be looked at, what waits for the longest time first.
func (d *docket) due(now time.Time) (all []look) {
	for who, c := range d.open {
		if !c.heard && !c.waits && !c.due.IsZero() && !c.due.After(now) {
			all = append(all, look{who, c.said, c.past})
		}
	}
	slices.SortFunc(all, func(a, b look) int {
		return cmp.Or(d.open[a.complainant].due.Compare(d.open[b.complainant].due), cmp.Compare(a.stream, b.stream), cmp.Compare(a.typeURL, b.typeURL))
	})
	return all
}

// wait returns after what time something is due next, at most an hour.
func (d *docket) wait(now time.Time) time.Duration {
	wait := time.Hour
	for _, c := range d.open {
		if !c.heard && !c.waits && !c.due.IsZero() {
			wait = min(wait, max(c.due.Sub(now), 0))
		}
	}
	return wait
}

// found notes that at a look there was nothing to be heard, or nothing yet.
func (d *docket) found(l look, yet bool, now time.Time) {
	switch c := d.open[l.complainant]; {
	case c == nil || c.said != l.said: // it may be otherwise by now
	case yet:
		c.due = now.Add(lookAgain)
	default:
		delete(d.open, l.complainant)
	}
}

// hold has a complaint wait until others have been heard.
func (d *docket) hold(l look) { d.open[l.complainant].waits = true }

// free has those looked at again that wait.
func (d *docket) free() {
	for _, c := range d.open {
		c.waits = false
	}
}

// begin notes that a complaint is heard.
func (d *docket) begin(l look) { d.open[l.complainant].heard = true }

// done notes that it no longer is. It is looked at once more in any case: there may be something that was not heard.
func (d *docket) done(l look, r result, now time.Time) {
	d.free()
	c := d.open[l.complainant]
	c.heard, c.due = false, now.Add(d.hearing)
	switch r.ended {
	case "": // all was heard before
		if c.said == l.said {
			c.due = c.again
		}
	case endedQuarantined, endedAgain, moot:
	default:
		c.past = r.past
	}
}
