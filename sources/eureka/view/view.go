// Package view has what a Eureka lists, follows its changes, and decides whether two answers are of one memory. It is pure: no I/O, no
// clock.
package view

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"tributary/sources/eureka/wire"
)

// View is what a server lists. Its zero value lists nothing.
type View struct {
	instances map[wire.Key]wire.Instance
	broken    map[wire.Key]error // of those that cannot be read now
	whole     bool
}

// All makes a view of an answer with all applications, which replaces before. What of it cannot be read is as it was before.
func All(a *wire.Answer, before View) View {
	v := View{instances: make(map[wire.Key]wire.Instance, len(a.Instances)), broken: map[wire.Key]error{}}
	for _, i := range a.Instances {
		v.put(i, before.instances[i.Key])
	}
	v.whole = a.Nameless == 0 && v.hash() == a.Hash
	return v
}

// Change returns the view after changes. A server lists each change for some minutes, so that most of them are known already, and it hands
// out answers that it made earlier: what is newer than a change is not touched by it.
func (v View) Change(a *wire.Answer) View {
	after := View{instances: map[wire.Key]wire.Instance{}, broken: map[wire.Key]error{}}
	maps.Copy(after.instances, v.instances)
	maps.Copy(after.broken, v.broken)
	for _, i := range a.Instances {
		before, listed := v.instances[i.Key]
		switch {
		case i.Action == wire.Deleted:
			if listed && i.Evicted >= before.Registered {
				delete(after.instances, i.Key)
				delete(after.broken, i.Key)
			}
		case i.Updated >= before.Updated || i.Broken != nil:
			delete(after.broken, i.Key)
			after.put(i, before)
		}
	}
	after.whole = a.Nameless == 0 && after.hash() == a.Hash
	return after
}

// Fits reports whether changes can be of the server that gave the view, if their marks do not prove it: they make it whole, and what they
// have gone is what was listed, and not the same instance as another server took it.
func (v View) Fits(changes *wire.Answer) bool {
	after := v.Change(changes)
	for _, i := range changes.Instances {
		before, listed := v.instances[i.Key]
		if _, still := after.instances[i.Key]; listed && !still && before.Registered != i.Registered {
			return false
		}
	}
	return after.whole
}

// put adds an instance, that was before or is the zero one. Of one that cannot be read counts what was read last, but for its status, if it
// has one.
func (v View) put(i, before wire.Instance) {
	if why := i.Broken; why != nil {
		v.broken[i.Key] = why
		if before.ID != "" && before.Broken == nil {
			if i.Status != wire.Unknown {
				before.Status = i.Status
			}
			i = before
		}
	}
	v.instances[i.Key] = i
}

// Broken returns what cannot be read, and why.
func (v View) Broken() map[wire.Key]error { return v.broken }

// Whole reports whether it lists what its server had, by the hash code of that.
func (v View) Whole() bool { return v.whole }

// Instances returns what it lists, in order.
func (v View) Instances() []wire.Instance {
	return slices.SortedFunc(maps.Values(v.instances), func(a, b wire.Instance) int { return a.Compare(b.Key) })
}

// hash is the hash code of what it lists, which is how many there are by status, as in DOWN_1_UP_12_.
func (v View) hash() string {
	counts := map[string]int{}
	for _, i := range v.instances {
		counts[i.Status]++
	}
	var b strings.Builder
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		b.WriteString(status + "_" + strconv.Itoa(counts[status]) + "_")
	}
	return b.String()
}
