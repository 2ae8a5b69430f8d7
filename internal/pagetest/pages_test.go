package pagetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

var isRunner = regexp.MustCompile(`(?s)func TestPages\(t .*pagetest\.Of\(`)

// Every console block is run by some package, in its test TestPages.
func TestEveryBlockIsRun(t *testing.T) {
	blocks, err := Blocks(root)
	require.NoError(t, err)
	there := make(map[string]bool)
	for _, b := range blocks {
		there[b.ID] = true
		if where[b.ID] == "" {
			t.Errorf("%s:%d: nobody runs this block: say in internal/pagetest/where.go who does, as %q", b.Page, b.Steps[0].Line-1, b.ID)
		}
	}
	runners := make(map[string]bool)
	for id, runner := range where {
		runners[runner] = true
		if !there[id] {
			t.Errorf("internal/pagetest/where.go: no page has the block %q", id)
		}
	}
	for runner := range runners {
		files, err := filepath.Glob(filepath.Join(root, runner, "*_test.go"))
		require.NoError(t, err)
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			found = found || isRunner.Match(text)
		}
		require.True(t, found, "%s has no TestPages that takes the blocks of pagetest.Of", runner)
	}
}

func TestParse(t *testing.T) {
	page := "# One\n\n```yaml\na: b\n# no heading\n```\n\n1. List:\n\n   ```console\n   $ cat > a <<'EOF'\n   b\n   EOF\n   $ cat a \\\n    " +
		" | cat\n   b\n     c\n   ```\n" +
		"## `Two` words, [linked](a.md)!\n```console\n$ a |\n  b\n```\n```console\n$ c\n\nd\n```\n"
	blocks, err := parse("p.md", page)
	require.NoError(t, err)
	require.Equal(t, []Block{
		{"p.md#one", "p.md", []Step{{11, "cat > a <<'EOF'\nb\nEOF", nil}, {14, "cat a \\\n  | cat", []string{"b", "  c"}}}},
		{"p.md#two-words-linked", "p.md", []Step{{21, "a |\n  b", nil}}},
		{"p.md#two-words-linked 2", "p.md", []Step{{25, "c", []string{"", "d"}}}},
	}, blocks)
	for text, want := range map[string]string{
		"```sh\nls\n```\n":      "p.md:1: write commands as a block of ```console",
		"\n```console\n$ ls\n":  "p.md:2: the block does not end",
		"```console\n```\n":     "p.md:1: the block has no command",
		"```console\nls\n```\n": "p.md:2: a block of ```console begins with a command behind $",
	} {
		_, err := parse("p.md", text)
		require.ErrorContains(t, err, want)
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		shown, printed string
		same           bool
	}{
		{"a\nb", "a\nb\n", true},
		{"a\nb", "a\n", false},
		{"a", "a\nb\n", false},
		{"a", "", false},
		{"2026-05-04T03:00:00.000Z  x  3s", "2027-01-02T13:00:00Z    x 3", false},
		{"2026-05-04T03:00:00.000Z  x  3s", "2027-01-02T13:00:00Z    x  1m30s  ", true},
		{"version ab, pid 12", "version cd, pid 3", true},
		{"a … c", "a (b) c", true},
		{"a … c", "a (b) d", false},
		{"a\n…\nd", "a\nb\nc\nd", true},
		{"a\n…\nd", "a\nd", true},
		{"a\n…\nd", "a\nb", false},
		{"  a", " a", false},
		{"127.0.0.1:16010", "127.0.0.1:16014", false},
	} {
		diff := compare(strings.Split(c.shown, "\n"), c.printed)
		require.Equal(t, c.same, diff == "", "%q and %q: %s", c.shown, c.printed, diff)
	}
	require.Equal(t, "    a\n  - b\n  + c\n", compare([]string{"a", "b"}, "a\nc\n"))
}

func TestSandbox(t *testing.T) {
	run := func(sandbox *Sandbox, text string) error {
		sandbox.Dir = t.TempDir()
		sandbox.Programs = map[string]string{"endless": "echo begun; exec sleep 1000", "other": `echo other "$@"; exit 3`}
		defer sandbox.Close()
		blocks, err := parse("p.md", "```console\n"+text+"```\n")
		require.NoError(t, err)
		return sandbox.Run(blocks[0])
	}
	require.NoError(t, run(&Sandbox{}, "$ echo a > b\n$ cat b\na\n"))
	require.ErrorContains(t, run(&Sandbox{}, "$ echo a\nb\n"), "p.md:2: $ echo a\nthe page has -, and it printed +:\n  - b\n  + a\n")
	require.ErrorContains(t, run(&Sandbox{}, "$ true\n$ echo no >&2; false\n"), "p.md:3: $ echo no >&2; false\nexit code 1:\nno\n")
	require.ErrorContains(t, run(&Sandbox{}, "$ other\n"), "exit code 3")
	require.ErrorContains(t, run(&Sandbox{Ends: map[string][]int{"true": {3}}}, "$ true\n"), "exit code 0")
	require.NoError(t, run(&Sandbox{Ends: map[string][]int{"other": {3}}, Instead: map[string]string{"host:1": "there:2"}},
		"$ other host:1\nother host:1\n"))
	require.NoError(t, run(&Sandbox{Until: map[string]string{"endless": "begun"}}, "$ endless\nbegun\n"))
	require.NoError(t, run(&Sandbox{Until: map[string]string{"endless": "begun"}, Stay: []string{"endless"}},
		"$ endless\n$ echo still\nstill\n"))
	require.ErrorContains(t, run(&Sandbox{Until: map[string]string{"true": "begun"}}, "$ true\n"), "it ended")
}
