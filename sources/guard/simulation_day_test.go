package guard

import (
	"maps"
	"slices"
	"time"

	"tributary/resource"
)

// plan draws the events of a day.
func (d *day) plan() {
	for range d.between(4, 12) {
		d.after(d.within(0, 20*time.Hour), d.change)
	}
	for range d.between(0, 2) {
		d.after(d.within(time.Hour, 16*time.Hour), d.fail)
	}
	for range d.between(0, 2) {
		d.after(d.within(0, 20*time.Hour), d.again)
	}
}

// again restarts tributary, which then reads the source again.
func (d *day) again() {
	var puts []*resource.Resource
	var deletes []resource.Key
	for r := range d.table.Snapshot().All() {
		if d.said[r.Key()] == nil {
			deletes = append(deletes, r.Key())
		}
	}
	for _, r := range d.said {
		puts = append(puts, r)
	}
	slices.SortFunc(puts, func(a, b *resource.Resource) int { return a.Key().Compare(b.Key()) })
	d.restart(puts, deletes)
}

// change is something that people do on purpose.
func (d *day) change() {
	d.changes++
	services := d.keys(resource.ServiceEntry)
	switch d.random.Intn(10) {
	case 0, 1: // a deploy: one instance after the other, or all at once
		for _, key := range d.some(services, 0.1) {
			d.deploy(key)
		}
	case 2: // a release of everything within minutes
		for _, key := range services {
			d.after(d.within(0, 5*time.Minute), func() { d.deploy(key) })
		}
	case 3: // scaled up or down
		for _, key := range d.some(services, 0.2) {
			o := d.truth[key]
			n := d.between(1, 2*len(o.endpoints)+1)
			if n <= len(o.endpoints) {
				o.endpoints = slices.Clone(o.endpoints[:n])
			} else {
				o.endpoints = append(slices.Clone(o.endpoints), d.fresh(n-len(o.endpoints))...)
			}
			d.truth[key] = o
		}
	case 4, 5: // new objects
		for range d.between(1, 5) {
			d.add([]resource.Kind{resource.ServiceEntry, vs, ap}[d.random.Intn(3)])
		}
	case 6: // one or two go
		keys := d.keys("")
		d.drop(d.some(keys, 1)[:min(d.between(1, 2), len(keys))], false)
	case 7: // a team goes, or everything of a kind
		kinds := []resource.Kind{"", resource.ServiceEntry, vs, ap}
		d.drop(d.some(d.keys(kinds[d.random.Intn(4)]), []float64{0.1, 0.3, 0.5, 1}[d.random.Intn(4)]), false)
	case 8: // renamed
		picked := d.some(d.keys(""), []float64{0.05, 0.3, 1}[d.random.Intn(3)])
		rest := make(map[resource.Key]object)
		for _, key := range picked {
			o := d.truth[key]
			key.Name += "-renamed"
			rest[key] = o
		}
		d.drop(picked, true)
		maps.Copy(d.truth, rest)
	case 9: // a zone with a third of all instances is drained for a while
		back := make(map[resource.Key][]string)
		for _, key := range services {
			o := d.truth[key]
			if n := len(o.endpoints) * 2 / 3; n > 0 {
				back[key] = o.endpoints[n:]
				o.endpoints = slices.Clone(o.endpoints[:n])
				d.truth[key] = o
			}
		}
		d.after(d.within(30*time.Minute, 2*time.Hour), func() {
			for key, as := range back {
				if o, ok := d.truth[key]; ok {
					o.endpoints = append(slices.Clone(o.endpoints), as...)
					d.truth[key] = o
				}
			}
		})
	}
}

// deploy replaces the instances of a service, by as many others.
func (d *day) deploy(key resource.Key) {
	object, ok := d.truth[key]
	if !ok {
		return
	}
	next := d.fresh(len(object.endpoints))
	if d.chance(2) {
		object.endpoints = next
		d.truth[key] = object
		return
	}
	for i, a := range next {
		d.after(time.Duration(i)*d.within(time.Second, 30*time.Second), func() {
			if object, ok := d.truth[key]; ok {
				object.endpoints = append(slices.Clone(object.endpoints), a)
				if len(object.endpoints) > 1 {
					object.endpoints = object.endpoints[1:]
				}
				d.truth[key] = object
			}
		})
	}
}

// drop deletes on purpose. If that is held, it is released some time later.
func (d *day) drop(keys []resource.Key, renamed bool) {
	if d.above(keys, renamed) {
		d.mass++
		d.meant = d.clock
		d.after(d.within(5*time.Minute, 30*time.Minute), func() {
			if d.holding() && d.fault == nil {
				d.release()
			}
		})
	}
	for _, key := range keys {
		delete(d.truth, key)
	}
}

// above reports whether the loss of ks is held by the rules of the docs.
func (d *day) above(ks []resource.Key, renamed bool) bool {
	most := func(n, total int) bool { return n > DefaultMin && 2*n > total }
	kinds := make(map[resource.Kind]int)
	ends, all := 0, 0
	for _, key := range ks {
		kinds[key.Kind]++
		ends += len(d.truth[key].endpoints)
	}
	for _, o := range d.truth {
		all += len(o.endpoints)
	}
	for kind, n := range kinds {
		if total := len(d.keys(kind)); !renamed && n == total && n >= 2 || most(n, total) {
			return true
		}
	}
	return !renamed && len(ks) == len(d.truth) && len(ks) >= 2 || most(len(ks), len(d.truth)) || !renamed && most(ends, all)
}

// fail makes the source wrong for a while.
func (d *day) fail() {
	if d.fault != nil {
		return
	}
	d.faults++
	f := &fault{taken: make(map[resource.Key]bool)}
	d.fault = f
	d.after(d.within(20*time.Second, 3*time.Hour), func() { d.recover(f) })
	switch d.random.Intn(7) {
	case 0: // it is empty: wiped, not mounted, another folder
		f.lacks = func(resource.Key) bool { return true }
	case 1: // a part is there: it is read while it is written, or half of it has failed
		f.lacks = d.missing(d.some(d.keys(""), 0.2+0.75*d.random.Float64()))
	case 2: // a kind is not there: rights, a selector
		kind := []resource.Kind{resource.ServiceEntry, vs, ap}[d.random.Intn(3)]
		f.lacks = func(key resource.Key) bool { return key.Kind == kind }
	case 3: // every instance is unhealthy
		f.bare = func(resource.Key) bool { return true }
	case 4: // removed file by file
		lost := make(map[resource.Key]bool)
		f.lacks = func(key resource.Key) bool { return lost[key] }
		keys := d.some(d.keys(""), 1)
		for i, key := range keys {
			d.after(time.Duration(i+1)*30*time.Second/time.Duration(len(keys)), func() { lost[key] = true })
		}
	case 5: // it is there and not, by turns
		empty := true
		f.lacks = func(resource.Key) bool { return empty }
		for i := range 60 {
			d.after(time.Duration(i)*time.Second, func() { empty = !empty })
		}
	case 6: // leases run out over minutes, without renewal
		f.slowly = true
		lost := make(map[resource.Key]bool)
		f.lacks = func(key resource.Key) bool { return lost[key] }
		over := d.within(2*time.Minute, 20*time.Minute)
		for _, key := range d.keys("") {
			d.after(d.within(0, over), func() { lost[key] = true })
		}
	}
}

func (d *day) missing(ks []resource.Key) func(resource.Key) bool {
	lost := make(map[resource.Key]bool)
	for _, key := range ks {
		lost[key] = true
	}
	return func(key resource.Key) bool { return lost[key] }
}

// recover ends the fault.
func (d *day) recover(f *fault) {
	d.fault, d.right = nil, d.clock
	if f.slowly {
		d.slowly += len(f.taken)
		d.slowlyGone += f.missing
		return
	}
	d.taken += len(f.taken)
	d.unserved += f.missing
	if f.mass {
		d.massFaults++
		if !f.wasHeld {
			d.missedFaults++
		}
	}
}
