package envoy

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tributary/resource"
	"tributary/server/xds"
)

// docket has the complaints that are open. What a client rejects is not kept here but is asked of the server whenever it is looked at: it stays so until the
// client accepts something else, whatever else it says meanwhile, and so none is lost. An entry is just that there may be something to be found, when to look, and
// what was found to lead nowhere. Who has rejected something has an entry until it was looked at and there is nothing. A docket does nothing by itself and
// looks at no clock.
//
// At an address, one complaint is looked at at a time, and none while its clients are heard, wait for others or rest. So that many of them cost no more than
// one, and each address gets its turn. What is done takes as long as the logarithm of how many complain, but for what concerns all.
type docket struct {
	hearing time.Duration // after which a complaint is looked at: others have had time to answer
	open    map[complainant]*complaint
	hosts   map[string]*bench
	first   queue[*bench] // those where something will be looked at
}

// bench is where those wait who complain at an address.
type bench struct {
	host  string
	line  queue[*complaint] // what will be looked at
	open  int
	heard int       // just now
	waits bool      // for others to be heard
	rests time.Time // until then

	next  time.Time // when the first of the line is looked at, if the bench is in the queue
	place int
}

func (b *bench) before(other *bench) bool { return b.next.Before(other.next) }
func (b *bench) at() *int                 { return &b.place }

// complainant is one type on one stream.
type complainant struct {
	stream  uint64
	typeURL string
}

type complaint struct {
	complainant
	bench *bench
	said  uint64        // how often the client has said something since there is a complaint
	due   time.Time     // when it is looked at; zero if not before the client says something
	pause time.Duration // after which it was looked at last, since the client says nothing
	heard bool          // just now
	place int
	past
}

func (c *complaint) before(other *complaint) bool { return c.order(other) < 0 }
func (c *complaint) at() *int                     { return &c.place }

// order has first what waits for the longest time.
func (c *complaint) order(other *complaint) int {
	return cmp.Or(c.due.Compare(other.due), cmp.Compare(c.stream, other.stream), cmp.Compare(c.typeURL, other.typeURL))
}

// past is what was found of a complaint that leads nowhere as it is.
type past struct {
	about []xds.Resource // that were heard, unless they are too many
	whole sum            // of these then
	turn  uint64         // of the quarantine, then
	again time.Time      // when it is heard anew although nothing has changed; zero for never
	upTo  resource.Key   // that was suspected to be wrong from the start, of more than are tried at a time; zero if that was all
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
		if d.hosts[host] == nil {
			d.hosts[host] = &bench{host: host, place: -1}
		}
		c = &complaint{complainant: who, bench: d.hosts[host], place: -1}
		d.open[who] = c
		c.bench.open++
	}
	c.said++
	c.pause = 0
	at := now.Add(d.hearing)
	if earlier = c.due.IsZero() || at.Before(c.due); earlier {
		c.due = at
		d.put(c)
	}
	return earlier
}

// put puts a complaint where it belongs, after something of it has changed.
func (d *docket) put(c *complaint) {
	c.bench.line.place(c, !c.heard && !c.due.IsZero())
	d.putBench(c.bench)
}

// putBench does the same for an address.
func (d *docket) putBench(b *bench) {
	in := !b.waits && b.heard == 0 && len(b.line) > 0
	if in {
		b.next = b.line[0].due
		if b.next.Before(b.rests) {
			b.next = b.rests
		}
	}
	d.first.place(b, in)
}

// leave notes that a client has left, or is led elsewhere: if it complains of something, that is to be looked at.
func (d *docket) leave(who complainant, now time.Time) (earlier bool) {
	c := d.open[who]
	return c != nil && d.take(who, "", true, now)
}

// due returns what is to be looked at, of each address what waits for the longest time, and what waits for the longest time first.
func (d *docket) due(now time.Time) (all []look) {
	var first []*complaint
	d.first.while(func(b *bench) bool { return !b.next.After(now) }, func(b *bench) { first = append(first, b.line[0]) })
	slices.SortFunc(first, (*complaint).order)
	for _, c := range first {
		all = append(all, look{c.complainant, c.said, c.past})
	}
	return all
}

// wait returns after what time something is due next, at most an hour.
func (d *docket) wait(now time.Time) time.Duration {
	if len(d.first) == 0 {
		return time.Hour
	}
	return min(time.Hour, max(d.first[0].next.Sub(now), 0))
}

// found notes that at a look there was nothing to be heard, or nothing yet. Who says nothing is looked at ever less often.
func (d *docket) found(l look, yet bool, now time.Time) {
	switch c := d.open[l.complainant]; {
	case c == nil || c.said != l.said: // it may be otherwise by now
	case yet:
		c.pause = min(max(2*c.pause, lookAgain), lookSeldom)
		c.due = now.Add(c.pause)
		d.put(c)
	default:
		delete(d.open, l.complainant)
		c.due = time.Time{}
		d.put(c)
		if b := c.bench; b.open == 1 && !b.rests.After(now) {
			delete(d.hosts, b.host)
		} else {
			b.open--
		}
		d.clean(now)
	}
}

// clean forgets addresses at which nobody complains any more, and that need not rest.
func (d *docket) clean(now time.Time) {
	if len(d.hosts) > 2*len(d.open)+maxResting {
		maps.DeleteFunc(d.hosts, func(_ string, b *bench) bool { return b.open == 0 && !b.rests.After(now) })
	}
}

// hold has those at an address wait until others have been heard.
func (d *docket) hold(l look) {
	b := d.open[l.complainant].bench
	b.waits = true
	d.putBench(b)
}

// free has those looked at again that wait.
func (d *docket) free() {
	for _, b := range d.hosts {
		if b.waits {
			b.waits = false
			d.putBench(b)
		}
	}
}

// begin notes that a complaint is heard.
func (d *docket) begin(l look) {
	c := d.open[l.complainant]
	c.heard = true
	c.bench.heard++
	d.put(c)
}

// done notes that it no longer is, and that nobody at its address is heard for some time. It is looked at once more in any case: there may be something that
// was not heard.
func (d *docket) done(l look, r result, rest time.Duration, now time.Time) {
	d.free()
	c := d.open[l.complainant]
	c.bench.heard--
	c.bench.rests = now.Add(rest)
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
	d.put(c)
}
