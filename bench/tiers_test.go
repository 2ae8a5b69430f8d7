package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"
)

// Each step must have its figures, and one change must be one message for each reader.
func TestTiers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells the CPU of another process")
	}
	if testing.Short() {
		t.Skip("each step waits until the tiers are at rest")
	}
	binary := buildTributary(t)
	var out bytes.Buffer
	flags := tiersFlags{depth: 2, objects: 30, clients: 4, returning: 3}
	if err := runTiers(binary, flags, settings{Repeat: 1, Timeout: 20 * time.Second}, &out); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{
		`(?m)^\| 1 .*\| +1 \| +\d+ \| +\d+ \|$`,
		`(?m)^\| 2 .*\| +4 \| +\d+ \| +\d+ \|$`,
		`(?m)^\| tier 2 starts .*\| 2 `,
		`(?m)^\| clients read everything .*\| 2 .*\| +60 \|`, // 15 types
		`(?m)^\| clients come back, one change behind .*\| 2 .*\| +45 \|`,
	} {
		if !regexp.MustCompile(pattern).Match(out.Bytes()) {
			t.Errorf("no line matches %s in\n%s", pattern, &out)
		}
	}
}

func buildTributary(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "tributary")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "..", "-o", binary, "./cmd/tributary").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}
