package testutil

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// crashing is the environment variable that makes the test binary write to the path it names, until it is killed.
	crashing = "TRIBUTARY_TEST_CRASHING"
	// rounds is the environment variable that says how often; `make soak` sets it.
	rounds = "TRIBUTARY_TEST_CRASHES"
	// longest is how long a writer lives at most from when its life is measured.
	longest = 500 * time.Millisecond
)

// KillTarget is where the process is to write until it is killed; a process that is to run its tests has none.
func KillTarget() (path string, ok bool) {
	path = os.Getenv(crashing)
	return path, path != ""
}

// KillRounds is how often to kill: what the environment says, or else usual.
func KillRounds(t *testing.T, usual int) int {
	text := os.Getenv(rounds)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// KillOnce kills the test binary at any moment, for tests of what is kept on disk: its TestMain writes, instead of
// running tests, when KillTarget names where, and prints, a line each, the number of the last write that must outlive
// it. The writer runs for a while, from its start if early, else from when it first says that something was written.
// KillOnce returns the last number that it printed: 0 is nothing.
func KillOnce(t *testing.T, path string, early bool) (written int) {
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this very test binary
	cmd.Env = append(os.Environ(), crashing+"="+path)
	cmd.Stderr = os.Stderr
	readCloser, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(time.Hour, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	soon := func() { kill.Reset(rand.N(longest)) } //nolint:gosec // any moment will do
	if early {
		soon()
	}
	for lines := bufio.NewScanner(readCloser); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		require.NoError(t, err)
		if n > 0 && written == 0 && !early {
			soon()
		}
		written = n
	}
	require.ErrorContains(t, cmd.Wait(), "killed")
	return written
}
