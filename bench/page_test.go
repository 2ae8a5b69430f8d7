package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPage_HasOutputOfItsCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	const page = "# A page\n\n<!-- bench -server a -->\n\nold\n\n<!-- end of bench -->\ntext\n<!-- bench -server b -->\n<!-- end of bench " +
		"-->\n<!-- bench -bad -->\nstays\n<!-- end of bench -->\n"
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	err := writePage(file, "", func(args []string, out *bytes.Buffer) error {
		if args[0] == "-bad" {
			return errors.New("no such flag")
		}
		out.WriteString("new " + strings.Join(args, " ") + "\n")
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "-bad: no such flag") {
		t.Errorf("error %v", err)
	}
	const want = "# A page\n\n<!-- bench -server a -->\n\nnew -server a\n\n<!-- end of bench -->\ntext\n<!-- bench -server b -->\n\nnew " +
		"-server b\n\n<!-- end of bench -->\n<!-- bench -bad -->\nstays\n<!-- end of bench -->\n"
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
	if err := writePage(file, "-server b", func(_ []string, out *bytes.Buffer) error { out.WriteString("newer"); return nil }); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != strings.Replace(want, "new -server b", "newer", 1) {
		t.Errorf("%v\n%s", err, got)
	}
}

// The page with the figures has blocks, and this program takes their flags.
func TestPerformancePage(t *testing.T) {
	text, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := block.FindAllSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Fatal("no blocks")
	}
	for _, b := range blocks {
		if err := run(append(strings.Fields(string(b[2])), "-check"), &bytes.Buffer{}); err != nil {
			t.Errorf("%s: %v", b[2], err)
		}
	}
}
