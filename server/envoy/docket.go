package envoy

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tributary/server/xds"
)

// docket has the complaints that are open. What a client rejects is not kept here but is asked of the server whenever it is looked at: it stays so until the
// client accepts something else, whatever else it says meanwhile, and so none is lost. An entry is just that there may be something to be found, when to look, and
// what was found to lead nowhere. Who has rejected something has an entry until it was looked at and there is nothing. A docket does nothing by itself and
// looks at no clock.
//
// At an address, one complaint is looked at at a time, and none while its clients are heard, wait for others or rest. So that many of them cost no more than
// one, and each address gets its turn.
type docket struct {
	hearing time.Duration // after which a complaint is looked at: others have had time to answer
	open    map[complainant]*complaint
	hosts   map[string]*bench
}

// bench is where those wait who complain at an address.
type bench struct {
	open  int
	heard int       // just now
	waits bool      // for others to be heard
	rests time.Time // until then
}

// complainant is one type on one stream.
type complainant struct {
	stream  uint64
	typeURL string
}

type complaint struct {
	host  string
	said  uint64    // how often the client has said something since there is a complaint
	due   time.Time // when it is looked at; zero if not before the client says something
	heard bool      // just now
	past
}

// past is what was found of a complaint that leads nowhere as it is.
type past struct {
	about []xds.Resource // that were heard, unless they are too many
	whole sum            // of these then
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
	return docket{hearing: hearing, open: make(map[complainant]*complaint), hosts: make(map[string]*bench)}
}

func (d *docket) isEmpty() bool { return len(d.open) == 0 }

// take notes that a client at an address has said something, and reports whether there is something to be looked at earlier than before.
func (d *docket) take(who complainant, host string, rejects bool, now time.Time) (earlier bool) {
	c := d.open[who]
	if c == nil {
		if !rejects {
			return false
		}
		c = &complaint{host: host}
		d.open[who] = c
		if d.hosts[host] == nil {
			d.hosts[host] = &bench{}
		}
		d.hosts[host].open++
	}
	c.said++
	at := now.Add(d.hearing)
	if earlier = c.due.IsZero() || at.Before(c.due); earlier {
		c.due = at
	}
	return earlier
}

// leave notes that a client has left, or is led elsewhere: if it complains of something, that is to be looked at.
func (d *docket) leave(who complainant, now time.Time) (earlier bool) {
	c := d.open[who]
	return c != nil && d.take(who, c.host, true, now)
}

// due returns what is to be looked at, of each address what waits for the longest time, and what waits for the longest time first.
func (d *docket) due(now time.Time) (all []look) {
	order := func(a, b look) int {
		return cmp.Or(d.open[a.complainant].due.Compare(d.open[b.complainant].due), cmp.Compare(a.stream, b.stream), cmp.Compare(a.typeURL, b.typeURL))
	}
	first := make(map[string]look)
	for who, c := range d.open {
		if c.isHeld(d.hosts[c.host]) || c.due.After(now) || d.hosts[c.host].rests.After(now) {
			continue
		}
		l := look{who, c.said, c.past}
		if f, has := first[c.host]; !has || order(l, f) < 0 {
			first[c.host] = l
		}
	}
	return slices.SortedFunc(maps.Values(first), order)
}

// isHeld says whether it is not looked at for now, however long that takes.
func (c *complaint) isHeld(b *bench) bool {
	return c.heard || c.due.IsZero() || b.waits || b.heard > 0
}

// wait returns after what time something is due next, at most an hour.
func (d *docket) wait(now time.Time) time.Duration {
	wait := time.Hour
	for _, c := range d.open {
		if b := d.hosts[c.host]; !c.isHeld(b) {
			wait = min(wait, max(c.due.Sub(now), b.rests.Sub(now), 0))
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
		if b := d.hosts[c.host]; b.open == 1 && !b.rests.After(now) {
			delete(d.hosts, c.host)
		} else {
			b.open--
		}
		d.clean(now)
	}
}

// clean forgets addresses at which nobody complains any more, and that need not rest.
func (d *docket) clean(now time.Time) {
	if len(d.hosts) > 2*len(d.open)+maxDisbelieved {
		maps.DeleteFunc(d.hosts, func(_ string, b *bench) bool { return b.open == 0 && !b.rests.After(now) })
	}
}

// hold has those at an address wait until others have been heard.
func (d *docket) hold(l look) { d.benchOf(l).waits = true }

func (d *docket) benchOf(l look) *bench { return d.hosts[d.open[l.complainant].host] }

// free has those looked at again that wait.
func (d *docket) free() {
	for _, b := range d.hosts {
		b.waits = false
	}
}

// begin notes that a complaint is heard.
func (d *docket) begin(l look) {
	d.open[l.complainant].heard = true
	d.benchOf(l).heard++
}

// done notes that it no longer is, and that nobody at its address is heard for some time. It is looked at once more in any case: there may be something that
// was not heard.
func (d *docket) done(l look, r result, rest time.Duration, now time.Time) {
	d.free()
	b := d.benchOf(l)
	b.heard--
	b.rests = now.Add(rest)
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
