package main

import (
	"fmt"
	"slices"

	"tributary/bench/engine"
)

// The modes of the clients' subscriptions.
const (
	modeDelta = "delta" // incremental, wildcard
	modeNames = "names" // incremental, by name, namedResources of them
	modeSotW  = "sotw"  // state of the world, wildcard
)

var modes = []string{modeDelta, modeNames, modeSotW}

// The scenarios of a case, in order.
const (
	initialSync = "initial"   // all streams open at once and get everything
	idle        = "idle"      // no change
	oneChange   = "change"    // one resource is replaced
	churn       = "churn"     // 1 % of the resources are replaced at once
	reconnect   = "reconnect" // all streams are closed and open again at once
	resume      = "resume"    // the same, with initial_resource_versions that lack one change
	storm       = "storm"     // single changes at a high rate
)

var scenarios = []string{initialSync, idle, oneChange, churn, reconnect, resume, storm}

// namedResources is how many resources a client asks for that subscribes by name.
const namedResources = 100

// group is a set of cases that differ only in the server: they are compared with each other.
type group struct {
	Mode      string
	Resources int
	Streams   int
}

// perStream is how many resources a stream of the group holds.
func (g group) perStream() int {
	if g.Mode == modeNames {
		return min(namedResources, g.Resources)
	}
	return g.Resources
}

// benchCase is one server with its clients, on which scenarios are run one after the other.
type benchCase struct {
	Server string
	group
	Scenarios []string
}

func (c benchCase) String() string {
	return fmt.Sprintf("%s, %s, %d resources, %d streams", c.Server, c.Mode, c.Resources, c.Streams)
}

// matrix is the set of cases of a run: every combination within bounds.
type matrix struct {
	Servers   []string
	Modes     []string
	Resources []int
	Streams   []int
	Scenarios []string
	// Bounded leaves out combinations that would not fit into the memory of a common machine, or would take most of the
	// time without new results. A combination that was requested by name is not bounded.
	Bounded bool
}

// fullMatrix is the run without flags.
func fullMatrix() matrix {
	return matrix{
		Servers:   engine.Compared(),
		Modes:     modes,
		Resources: []int{1_000, 10_000, 100_000},
		Streams:   []int{1, 50, 100, 500, 1_000},
		Scenarios: scenarios,
		Bounded:   true,
	}
}

// cases lists the cases, those to be compared next to each other.
func (m matrix) cases() []benchCase {
	var out []benchCase
	for _, mode := range m.Modes {
		for _, resources := range m.Resources {
			for _, streams := range m.Streams {
				g := group{mode, resources, streams}
				for _, server := range m.Servers {
					if m.Bounded && g.perStream()*streams > largest(server, mode) {
						continue
					}
					c := benchCase{Server: server, group: g}
					for _, s := range m.Scenarios {
						if applies(s, g, m.Bounded) {
							c.Scenarios = append(c.Scenarios, s)
						}
					}
					if len(c.Scenarios) > 0 {
						out = append(out, c)
					}
				}
			}
		}
	}
	return out
}

// largest bounds resources × streams. A server that keeps a table of versions for each stream and encodes for each stream
// needs about 400 bytes for each of that product, and its clients, which must take 7 KB for every ten in one message, more. A
// full-state response has to be sent whole for every change.
func largest(server, mode string) int {
	if mode == modeSotW || server == engine.Linear || server == engine.Snapshot {
		return 10_000_000
	}
	return 100_000_000
}

// applies says whether a scenario is run on a group.
func applies(scenario string, g group, bounded bool) bool {
	switch scenario {
	case resume:
		if g.Mode == modeSotW {
			return false // state of the world has no versions to resume from
		}
	case churn:
		if g.Resources < 100 {
			return false
		}
	}
	if !bounded {
		return true
	}
	switch scenario {
	case reconnect, resume:
		return g.Resources == 10_000
	case storm:
		return g.Resources == 10_000 && slices.Contains([]int{50, 100}, g.Streams)
	}
	return true
}
