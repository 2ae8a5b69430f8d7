package dubbo

import "tributary/internal/counters"

// counts are the counters of a source. They continue from one run to the next.
type counts struct {
	*counters.Set
	reads, healed, sessions, resolved, unresolved counters.Counter
}

func newCounts() *counts {
	c := &counts{
		reads:      counters.Counter{Name: "reads_total", Help: "State changes taken in: reads, connection changes, lookups."},
		healed:     counters.Counter{Name: "healed_total", Help: "Nodes found changed by the resync compare without a watch event."},
		sessions:   counters.Counter{Name: "sessions_lost_total", Help: "Sessions lost; everything was read again."},
		resolved:   counters.Counter{Name: "resolved_total", Help: "Revisions whose services were found out."},
		unresolved: counters.Counter{Name: "unresolved_total", Help: "Failed attempts to find out what a revision of an application serves."},
	}
	c.Set = counters.New("tributary_dubbo_", &c.reads, &c.healed, &c.sessions, &c.resolved, &c.unresolved)
	return c
}
