package guard

import (
	"fmt"
	"maps"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
	"tributary/resource"
)

// days is the variable with the number of days to simulate.
const days = "TRIBUTARY_TEST_DAYS"

// TestSimulation has the guard live through random days of a source: people deploy, scale, drain, rename and delete,
// tributary restarts, and twice a day or so the source is wrong. It counts needless holds, and losses by mistake that
// passed. docs/failing-safely.md has the figures of 1,000 days.
func TestSimulation(t *testing.T) {
	testutil.OneGoroutine(t)
	n := 60
	if s := os.Getenv(days); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	live := func(t *testing.T, settings Settings) (sum figures) {
		for seed := range int64(n) {
			d := newDay(t, seed, settings)
			d.pass()
			sum.add(d.figures)
		}
		t.Logf("%d days\n%s", n, sum)
		require.Zero(t, sum.missedFaults, "every mass loss by a fault is held")
		require.Zero(t, sum.stuck, "the rest of a hold ends by itself when all is well, unless a change above the limits was meant")
		return sum
	}
	t.Run("as it is", func(t *testing.T) {
		require.Zero(t, live(t, Settings{}).unaskedHolds, "only a fault, or a deletion or renaming above the limits, is held")
	})
	t.Run("window 20m", func(t *testing.T) { live(t, Settings{Window: 20 * time.Minute}) })
}

// figures are the results of the days.
type figures struct {
	changes      int // that people made
	mass         int // of these, deletions and renamings above the limits
	massHeld     int // of these, held: a person has to release them
	unaskedHolds int // began while the source was right, and no such change was made

	faults       int
	massFaults   int // of these, of a mass loss
	missedFaults int // of these, never held
	taken        int // wanted objects that faults took away, at the worst moment of each
	unserved     int // of these, were not served at that moment
	slowly       int // wanted objects that leases running out one by one took away
	slowlyGone   int

	stuck    int           // holds of a day with a fault that were still there an hour after all was right again
	deadFor  time.Duration // object-time that a deleted object was served while the source was right
	blindFor time.Duration // service-time that a service with live endpoints was served none of them
}

func (f *figures) add(o figures) {
	f.changes += o.changes
	f.mass += o.mass
	f.massHeld += o.massHeld
	f.unaskedHolds += o.unaskedHolds
	f.faults += o.faults
	f.massFaults += o.massFaults
	f.missedFaults += o.missedFaults
	f.taken += o.taken
	f.unserved += o.unserved
	f.slowly += o.slowly
	f.slowlyGone += o.slowlyGone
	f.stuck += o.stuck
	f.deadFor += o.deadFor
	f.blindFor += o.blindFor
}

func (f figures) String() string {
	var builder strings.Builder
	line := func(label string, figure any) { fmt.Fprintf(&builder, "| %s | %v |\n", label, figure) }
	line("changes that were meant", f.changes)
	line("holds that began without a fault and with few deletions", f.unaskedHolds)
	line("deletions and renamings above the limits; of these, held until a person releases them", fmt.Sprintf("%d; %d", f.mass, f.massHeld))
	line("faults; of these, mass losses", fmt.Sprintf("%d; %d", f.faults, f.massFaults))
	line("mass losses that were not held", f.missedFaults)
	line("objects that faults took away; of these, not served", fmt.Sprintf("%d; %d", f.taken, f.unserved))
	line("the same where leases ran out one by one over minutes", fmt.Sprintf("%d; %d", f.slowly, f.slowlyGone))
	line("holds that were still there an hour after the fault", f.stuck)
	line("hours that an object was served which was deleted on purpose", int(f.deadFor.Hours()))
	line("hours that a service with live endpoints was served none of them", int(f.blindFor.Hours()))
	return builder.String()
}

// object is an object in truth: the live addresses of a service.
type object struct{ endpoints []string }

// day is a day of one source.
type day struct {
	figures
	*simulated
	random *rand.Rand
	agenda []appointment // in order of time
	number int           // of names and addresses given so far

	truth       map[resource.Key]object // the objects that people want, with their live instances
	deeds       map[resource.Key]made   // of it
	said        map[resource.Key]*resource.Resource
	established map[resource.Key]bool // the source has had it, and it is still wanted

	// The fault of the moment; nil if the source is right.
	fault *fault
	meant time.Time // when a deletion or renaming above the limits was made last
	held  bool      // at the last look
	wrong bool      // there was a fault in this hold
	right time.Time // since when the source has been right

	addresses map[*resource.Resource][]string
}

type made struct {
	total string
	res   *resource.Resource
}

type appointment struct {
	at time.Time
	do func()
}

// fault is an error of the source.
type fault struct {
	lacks   func(key resource.Key) bool // the object
	bare    func(key resource.Key) bool // all its endpoints
	slowly  bool
	taken   map[resource.Key]bool
	missing int
	mass    bool
	wasHeld bool // something of it was held
}

func newDay(t *testing.T, seed int64, settings Settings) *day {
	d := &day{
		simulated: newSimulated(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), settings),
		random:    rand.New(rand.NewSource(seed)), //nolint:gosec // a history
		truth:     make(map[resource.Key]object), deeds: make(map[resource.Key]made),
		said: make(map[resource.Key]*resource.Resource), established: make(map[resource.Key]bool),
		addresses: make(map[*resource.Resource][]string),
	}
	size := []int{2, 6, 20, 60, 200}[d.random.Intn(5)]
	for range d.between(1, size) {
		d.add(resource.ServiceEntry)
	}
	for range d.between(0, size) {
		d.add(resource.VirtualService)
	}
	for range d.between(0, size/2) {
		d.add(resource.AuthorizationPolicy)
	}
	d.say()
	d.MarkRead()
	d.clock = d.clock.Add(time.Hour)
	d.right = d.clock
	d.plan()
	return d
}

func (d *day) between(least, most int) int { return least + d.random.Intn(most-least+1) }

func (d *day) chance(total int) bool { return d.random.Intn(total) == 0 }

func (d *day) within(least, most time.Duration) time.Duration {
	return least + time.Duration(d.random.Int63n(int64(most-least)+1))
}

func (d *day) add(kind resource.Kind) {
	d.number++
	o := object{}
	if kind == resource.ServiceEntry {
		o.endpoints = d.fresh(d.between(1, 8))
	}
	d.truth[resource.Key{Kind: kind, Namespace: "shop", Name: fmt.Sprintf("o%05d", d.number)}] = o
}

func (d *day) fresh(n int) (addresses []string) {
	for range n {
		d.number++
		addresses = append(addresses, fmt.Sprintf("10.%d.%d.%d", d.number>>16, d.number>>8&255, d.number&255))
	}
	return addresses
}

// keys are those of a kind in truth, or of all kinds, in order.
func (d *day) keys(kind resource.Kind) (keys []resource.Key) {
	for key := range d.truth {
		if kind == "" || key.Kind == kind {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, resource.Key.Compare)
	return keys
}

// some are a share of keys, at random.
func (d *day) some(ks []resource.Key, share float64) []resource.Key {
	d.random.Shuffle(len(ks), func(i, j int) { ks[i], ks[j] = ks[j], ks[i] })
	return ks[:int(share*float64(len(ks))+0.5)]
}

// at schedules an event, in truth or in the source; the source then publishes its content.
func (d *day) at(when time.Time, do func()) {
	i, _ := slices.BinarySearchFunc(d.agenda, when, func(a appointment, t time.Time) int {
		if a.at.After(t) {
			return 1
		}
		return -1
	})
	d.agenda = slices.Insert(d.agenda, i, appointment{when, do})
}

func (d *day) after(wait time.Duration, do func()) { d.at(d.clock.Add(wait), do) }

// pass lets the day pass.
func (d *day) pass() {
	end := d.clock.Add(24 * time.Hour)
	for len(d.agenda) > 0 && d.agenda[0].at.Before(end) {
		next := d.agenda[0]
		d.agenda = d.agenda[1:]
		d.waitUntil(next.at)
		next.do()
		d.say()
		d.judge()
	}
	d.waitUntil(end)
	d.judge()
	if d.holding() && d.wrong && d.fault == nil && d.clock.Sub(d.right) > time.Hour && d.meant.Before(d.right.Add(-24*time.Hour)) {
		d.stuck++
	}
}

// waitUntil lets time pass, and runs the actions that are due by then.
func (d *day) waitUntil(t time.Time) {
	for due := d.due(); !due.IsZero() && due.Before(t); due = d.due() {
		d.weigh(max(0, due.Sub(d.clock)))
		if due.After(d.clock) {
			d.clock = due
		}
		d.EndDue()
		d.judge()
	}
	d.weigh(t.Sub(d.clock))
	d.clock = t
}

// say has the source publish its content.
func (d *day) say() {
	now := make(map[resource.Key]*resource.Resource, len(d.truth))
	for key, object := range d.truth {
		if d.fault != nil && d.fault.lacks != nil && d.fault.lacks(key) {
			continue
		}
		if d.fault != nil && d.fault.bare != nil && d.fault.bare(key) {
			object.endpoints = nil
		}
		now[key] = d.make(key, object)
	}
	var puts []*resource.Resource
	var deletes []resource.Key
	for _, key := range slices.SortedFunc(maps.Keys(now), resource.Key.Compare) {
		if d.said[key] != now[key] {
			puts = append(puts, now[key])
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(d.said), resource.Key.Compare) {
		if now[key] == nil {
			deletes = append(deletes, key)
		}
	}
	d.said = now
	for key := range now {
		d.established[key] = true
	}
	if len(puts)+len(deletes) > 0 {
		d.Apply(puts, deletes)
	}
}

// make returns the object as the source publishes it: the same pointer if it did not change.
func (d *day) make(key resource.Key, o object) *resource.Resource {
	endpoints := strings.Join(o.endpoints, " ")
	if m := d.deeds[key]; m.res != nil && m.total == endpoints {
		return m.res
	}
	r := resource.FromBody(resource.Meta{Key: key}, nil)
	if key.Kind == resource.ServiceEntry {
		r = service(key, o.endpoints...)
	}
	d.deeds[key] = made{endpoints, r}
	return r
}

// judge counts the results of the last step.
func (d *day) judge() {
	held := d.holding()
	if held && !d.held {
		d.wrong = d.fault != nil
		if d.fault == nil && !d.meant.Equal(d.clock) && d.clock.Sub(d.right) > time.Minute {
			d.unaskedHolds++
		}
		if d.fault == nil && d.meant.Equal(d.clock) {
			d.massHeld++
		}
	}
	d.held = held
	fault := d.fault
	if fault == nil {
		return
	}
	d.wrong = true
	fault.wasHeld = fault.wasHeld || held
	maps.DeleteFunc(d.established, func(key resource.Key, _ bool) bool { _, wanted := d.truth[key]; return !wanted })
	missing, kinds, total := 0, make(map[resource.Kind]int), make(map[resource.Kind]int)
	for key := range d.established {
		total[key.Kind]++
		if d.said[key] == nil {
			fault.taken[key] = true
			kinds[key.Kind]++
			if d.table.Snapshot().Get(key) == nil {
				missing++
			}
		}
	}
	fault.missing = max(fault.missing, missing)
	lost := 0
	for kind, n := range kinds {
		fault.mass = fault.mass || n == total[kind] && n >= 2 || n > DefaultMin && 2*n > total[kind]
		lost += n
	}
	fault.mass = fault.mass || lost == len(d.established) && lost >= 2 || lost > DefaultMin && 2*lost > len(d.established)
}

// weigh counts the time during which the present state lasts.
func (d *day) weigh(duration time.Duration) {
	if duration <= 0 {
		return
	}
	for r := range d.table.Snapshot().All() {
		object, wanted := d.truth[r.Key()]
		if !wanted {
			if d.fault == nil {
				d.deadFor += duration
			}
			continue
		}
		if len(object.endpoints) == 0 {
			continue
		}
		served := d.addressesOf(r)
		if !slices.ContainsFunc(object.endpoints, func(a string) bool { return slices.Contains(served, a) }) {
			d.blindFor += duration
		}
	}
	for key, o := range d.truth {
		if len(o.endpoints) > 0 && d.table.Snapshot().Get(key) == nil {
			d.blindFor += duration
		}
	}
}

func (d *day) addressesOf(r *resource.Resource) []string {
	as, allocated := d.addresses[r]
	if !allocated {
		if se, ok := entryOf(r); ok {
			for _, e := range se.Endpoints {
				as = append(as, e.Address)
			}
		}
		d.addresses[r] = as
	}
	return as
}
