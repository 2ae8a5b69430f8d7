package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tributary/bench/engine"
	"tributary/bench/role"
)

// TestMain lets the test binary be the server and client processes too.
func TestMain(m *testing.M) {
	if played, err := role.Serve(); played {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Every server must get through every scenario: the clients check that all of them see each change.
func TestScenarios_Run(t *testing.T) {
	s := settings{Repeat: 1, StormRate: 1000, StormTime: 100 * time.Millisecond, IdleTime: time.Millisecond, Timeout: 20 * time.Second}
	m := fullMatrix()
	m.Resources, m.Streams, m.Bounded = []int{300}, []int{3}, false
	var o outcome
	for _, c := range m.cases() {
		t.Run(c.Server+"/"+c.Mode, func(t *testing.T) {
			for _, r := range runCase(c, s, func(string) {}) {
				o.results = append(o.results, r)
				if r.Err != nil {
					t.Errorf("%s: %v", r.Scenario, r.Err)
					continue
				}
				if r.Scenario == idle {
					continue
				}
				if r.CPU <= 0 || r.Last <= 0 || r.Messages < 3 || r.Bytes == 0 {
					t.Errorf("%s: figures are missing: %+v", r.Scenario, r.figures)
				}
				if got, want := r.Messages, uint64(c.Streams); r.Scenario == oneChange && got != want {
					t.Errorf("one change was sent in %d messages, want %d", got, want)
				}
			}
		})
	}
	dir := t.TempDir()
	if err := o.save(dir); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(filepath.Join(dir, "results.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range engine.Names() {
		if !strings.Contains(string(table), "| "+server) {
			t.Errorf("%s is missing in\n%s", server, table)
		}
	}
}

// A case fails, and does not hang, when its server cannot start.
func TestFailure(t *testing.T) {
	c := benchCase{Server: "none", group: group{modeDelta, 1, 1}, Scenarios: []string{oneChange}}
	results := runCase(c, settings{Repeat: 1, Timeout: time.Second}, func(string) {})
	if len(results) != 1 || results[0].Err == nil {
		t.Errorf("results: %+v", results)
	}
}

func TestBounds(t *testing.T) {
	for _, c := range fullMatrix().cases() {
		if c.Server == engine.Linear && c.Mode == modeDelta && c.Resources*c.Streams > 10_000_000 {
			t.Errorf("%s does not fit into memory", c)
		}
	}
	requested := matrix{
		Servers: []string{engine.Linear}, Modes: []string{modeDelta}, Resources: []int{100_000}, Streams: []int{1_000},
		Scenarios: []string{oneChange},
	}
	if len(requested.cases()) != 1 {
		t.Error("a combination requested by name is left out")
	}
	if n := len(quickCases()); n != 2*len(engine.Compared()) {
		t.Errorf("the quick run has %d cases", n)
	}
}

func TestMedian(t *testing.T) {
	runs := []figures{{CPU: 30, Bytes: 1}, {CPU: 10, Bytes: 3}, {CPU: 20, Bytes: 2}}
	r := summarize(benchCase{}, oneChange, runs)
	if r.CPU != 20 || r.Bytes != 2 || r.Least != 10 || r.Most != 30 || r.Repeats != 3 {
		t.Errorf("summary: %+v", r)
	}
}
