package main

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"testing"
	"time"
)

// Each client gets everything, and sees each change, in one message of each type that it touches.
func TestEnvoys(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells the CPU of another process")
	}
	if testing.Short() {
		t.Skip("each step waits until the program is at rest")
	}
	var out bytes.Buffer
	programs := filesFlags{tributary: buildTributary(t), istiod: "none"}
	flags := envoysFlags{services: 20, endpoints: 3, rules: 2, clients: 4}
	if err := runEnvoys(programs, flags, settings{Repeat: 1, Timeout: 20 * time.Second}, &out); err != nil {
		t.Fatal(err, &out)
	}
	for scenario, messages := range map[string]string{
		envoysFirst: "4", envoysOthers: "12", // clusters, endpoints, listeners, routes
		envoysEndpoint: "4", envoysRule: "4", envoysService: "12", // clusters, endpoints, routes
		// clusters, listeners, routes, virtual hosts none and some at once or not; clusters and endpoints of these
		envoysDemand: "[67]", envoysDemands: "(1[89]|2[01])",
	} {
		row := fmt.Sprintf(`(?m)^\| %s +\|( [^|]+\|){12} +%s \|`, scenario, messages)
		if !regexp.MustCompile(row).Match(out.Bytes()) {
			t.Errorf("%s is not %s messages in\n%s", scenario, messages, &out)
		}
	}
}
