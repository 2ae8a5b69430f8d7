package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// shellBlock is a block of a page with shell commands.
	shellBlock = regexp.MustCompile("(?ms)^[ ]*```(?:console|sh|bash)\n(.*?)^[ ]*```")
	// typed is a line of a block that runs the program, without the prompt, its variables and its redirection.
	typed = regexp.MustCompile(`(?m)^[ ]*\$ (?:[A-Z_]+=\S+ )*tributary ([^|#;&>\n]*)`)
	word  = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

// TestPagesNameCommands: each command line of the program in a shell block of a page has a command, flags and arguments
// that exist. The shown output is not checked.
func TestPagesNameCommands(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "*/README.md", "docs/*.md", "sources/*/README.md"} {
		files, err := filepath.Glob(filepath.Join("../..", pattern))
		require.NoError(t, err)
		pages = append(pages, files...)
	}
	lines := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			for _, line := range typed.FindAllStringSubmatch(strings.ReplaceAll(block[1], "\\\n", " "), -1) {
				lines++
				if err := takes(line[1]); err != nil {
					t.Errorf("%s: tributary %s: %v", filepath.ToSlash(page), line[1], err)
				}
			}
		}
	}
	require.NotZero(t, lines, "no page has a command line of the program")
	require.ErrorContains(t, takes("status --no-such-flag"), "no-such-flag")
	require.Error(t, takes("no-such-command"))
}

// takes tells why the program does not take a command line, without running it.
func takes(line string) error {
	var args []string
	for _, w := range word.FindAllString(line, -1) {
		args = append(args, strings.Trim(w, `'"`))
	}
	root := newRoot()
	root.InitDefaultCompletionCmd()
	command, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if command == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("no command %q", rest[0])
	}
	command.InitDefaultHelpFlag()
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	if err := command.ValidateArgs(command.Flags().Args()); err != nil {
		return err
	}
	return command.ValidateRequiredFlags()
}
