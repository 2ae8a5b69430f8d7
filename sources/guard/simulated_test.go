package guard

import (
	"slices"
	"time"

	"tributary/memstore"
	"tributary/resource"
)

// simulated wraps the guard of the simulation. All code that depends on its methods is here, so that another guard can replace it.
type simulated struct {
	*Guard
	settings Settings
	table    memstore.Table
	clock    time.Time
}

func newSimulated(at time.Time, settings Settings) *simulated {
	s := &simulated{clock: at, settings: settings}
	s.begin(nil, nil)
	return s
}

func (s *simulated) begin(state []byte, held map[resource.Key]Loss) {
	s.Guard = New(&s.table, Options{Settings: s.settings})
	s.now = func() time.Time { return s.clock }
	if err := s.Resume(state, held); err != nil {
		panic(err)
	}
}

// restart continues with a new guard. The source is then read anew: its objects are put, and others in the table are deleted.
func (s *simulated) restart(puts []*resource.Resource, deletes []resource.Key) {
	held := held(s.Guard)
	s.begin(s.State(), held)
	deletes = slices.DeleteFunc(deletes, func(k resource.Key) bool { l, ok := held[k]; return ok && l.Desired == nil })
	s.Apply(puts, deletes)
	s.MarkSynced()
}

// due returns when the hold ends by itself; zero if there is none, or if it does not.
func (s *simulated) due() time.Time {
	if st := s.Status(); st != nil && st.Until != nil {
		return *st.Until
	}
	return time.Time{}
}

func (s *simulated) holding() bool { return s.Status() != nil }

func (s *simulated) release() { _, _, _ = s.Release("", "somebody") }
