package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A server goes on when the reader of its log ends.
func TestLogWithoutAReader(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	read, written, err := os.Pipe()
	require.NoError(t, err)
	// The output before that has the address of the server.
	addresses := dir + "/addresses"
	child := prepared(t, dir, func(c *exec.Cmd) { c.Stderr = written },
		append([]string{os.Args[0], "serve", "--log-format", "json"},
			append([]string{"--listen", "unix://" + dir + "/x", "--admin", "unix://" + addresses}, "--config-source", "fs://"+dir, "--state-dir",
				"off")...)...)
	require.NoError(t, written.Close())
	ready := func() error {
		if got := command(t, "status", "--check", "--admin", "unix://"+addresses); got.code != 0 {
			return assert.AnError
		}
		return nil
	}
	eventually(t, ready)
	require.NoError(t, read.Close())
	for _, name := range []string{"b", "c", "d"} {
		write(t, dir+"/"+name+".yaml", entry(name, 80)) // it is logged
		eventually(t, func() error {
			if got := command(t, "explain", "se", "shop/"+name, "--admin", "unix://"+addresses); got.code != 0 {
				return assert.AnError
			}
			return nil
		})
	}
	select {
	case <-child.ended:
		require.Fail(t, "the server ended")
	default:
	}
}
