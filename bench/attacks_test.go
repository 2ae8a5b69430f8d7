package main

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"time"

	"tributary/bench/attack"
)

// Every attack runs, and honest clients are served meanwhile. The test does not assert costs: sizes are small.
func TestAttacks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells the CPU of another process")
	}
	if testing.Short() {
		t.Skip("twenty servers are started")
	}
	var out bytes.Buffer
	flags := attacksFlags{
		size: 0.01, objects: 1000, honest: 3, changes: 2, rounds: 1, least: time.Second,
		servers: "tributary,go-control-plane",
	}
	if err := runAttacks(filesFlags{tributary: buildTributary(t)}, flags, settings{Timeout: 30 * time.Second}, &out); err != nil {
		t.Fatal(err)
	}
	for _, name := range attack.Names() {
		for _, server := range []string{"tributary", "go-control-plane"} {
			row := rowOf(out.String(), name, server)
			if len(row) != 14 {
				t.Fatalf("no row for %s on %s in\n%s", name, server, &out)
			}
			if !strings.HasSuffix(row[6], "×") {
				t.Errorf("%s on %s: no ratio in %q", name, server, row)
			}
			if row[11] == "0" {
				t.Errorf("%s on %s: no attacker connected: %q", name, server, row)
			}
		}
	}
}

func rowOf(table, attack, server string) []string {
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) > 2 && cells[0] == attack && cells[1] == server {
			return cells
		}
	}
	return nil
}
