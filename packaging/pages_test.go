package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/pagetest"
)

// TestPages runs the console blocks of the pages that install the package. The content of the package is unpacked into
// a folder; TestDebian installs it.
func TestPages(t *testing.T) {
	blocks, err := pagetest.Of("..", pagetest.Packaging)
	require.NoError(t, err)
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("there is no dpkg-deb to unpack a .deb")
	}
	built := release{source: "..", out: t.TempDir(), version: "v1.2.3", date: commit}
	require.NoError(t, built.make(t.Context(), host))
	for id, block := range blocks {
		t.Run(strings.ReplaceAll(id, "#", " "), func(t *testing.T) {
			s := &pagetest.Sandbox{Dir: built.out, Programs: map[string]string{
				"sudo":      `exec "$@"`,
				"dpkg":      `[ "$1" = -i ] && exec dpkg-deb -x "$2" root`,
				"tributary": `exec root/usr/bin/tributary "$@"`,
			}}
			t.Cleanup(s.Close)
			require.NoError(t, s.Run(block))
		})
	}
}
