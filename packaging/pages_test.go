package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/pagetest"
)

// TestPages runs the console blocks of the pages that install the package. What is in the package is unpacked into a folder; that it
// installs is TestDebian's.
func TestPages(t *testing.T) {
	blocks, err := pagetest.Of("..", pagetest.Packaging)
	require.NoError(t, err)
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("nothing here unpacks a .deb")
	}
	made := release{source: "..", out: t.TempDir(), version: "v1.2.3", date: commit}
	require.NoError(t, made.make(t.Context(), here))
	for id, block := range blocks {
		t.Run(strings.ReplaceAll(id, "#", " "), func(t *testing.T) {
			s := &pagetest.Sandbox{Dir: made.out, Programs: map[string]string{
				"sudo":      `exec "$@"`,
				"dpkg":      `[ "$1" = -i ] && exec dpkg-deb -x "$2" root`,
				"tributary": `exec root/usr/bin/tributary "$@"`,
			}}
			t.Cleanup(s.Close)
			require.NoError(t, s.Run(block))
		})
	}
}
