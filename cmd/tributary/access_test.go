package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTokenNew(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) (code int, out, errs string) {
		var buffer, e bytes.Buffer
		command := newRoot()
		command.SetArgs(args)
		command.SetOut(&buffer)
		command.SetErr(&e)
		code = exitCode(command.ExecuteContext(t.Context()), command, &e)
		return code, strings.TrimSpace(buffer.String()), e.String()
	}
	tokens := dir + "/tokens"
	require.NoError(t, os.WriteFile(tokens, []byte("# without an end of line"), 0o600))
	code, first, errs := run("token", "new", "ci", "--file", tokens)
	require.Zero(t, code, errs)
	code, second, _ := run("token", "new", "web", "--file", tokens)
	require.Zero(t, code)
	text, err := os.ReadFile(tokens)
	require.NoError(t, err)
	require.Regexp(t, `\A# without an end of line\nci sha256:[0-9a-f]{64}\nweb sha256:[0-9a-f]{64}\n\z`, string(text))
	require.NotEqual(t, first, second)
	require.NotContains(t, string(text), first)
	code, _, errs = run("token", "new", "a b", "--file", tokens)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "want letters, digits")
	code, _, _ = run("token", "new", "ci", "--file", dir+"/made")
	require.Zero(t, code)
	info, err := os.Stat(dir + "/made")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	code, _, _ = run("token", "new", "lost", "--file", tokens)
	require.Zero(t, code)
	cmd := newRoot()
	cmd.SetArgs([]string{"token", "new", "full", "--file", tokens})
	cmd.SetOut(full{})
	require.ErrorIs(t, cmd.ExecuteContext(t.Context()), errFull)
	text, err = os.ReadFile(tokens)
	require.NoError(t, err)
	require.NotContains(t, string(text), "full", "nobody has it")
}

// full is a device that refuses writes.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }
