package dubbo

import "tributary/internal/counters"

// counts count what the source does. They go on from one run to the next.
type counts struct {
	*counters.Set
	reads, healed, sessions, resolved, unresolved counters.Counter
}

func newCounts() *counts {
	c := &counts{
		reads: counters.Counter{Name: "reads_total", Help: "Parts of the registry that were read, at the start and whenever they changed."},
		healed: counters.Counter{Name: "healed_total", Help: "Nodes that the slow compare found to be different from what the watches had " +
			"told."},
		sessions:   counters.Counter{Name: "sessions_lost_total", Help: "Sessions that ended, after which everything was read anew."},
		resolved:   counters.Counter{Name: "resolved_total", Help: "Revisions of applications of which was found out what they serve."},
		unresolved: counters.Counter{Name: "unresolved_total", Help: "Attempts at that which failed."},
	}
	c.Set = counters.New("tributary_dubbo_", &c.reads, &c.healed, &c.sessions, &c.resolved, &c.unresolved)
	return c
}
