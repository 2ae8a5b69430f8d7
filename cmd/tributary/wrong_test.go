package main

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// hinted are the flags that a text names.
var hinted = regexp.MustCompile("(?:^|[\\s`(])(--[a-z][a-z-]+|-[a-z]\\b)")

// onlyItsFlags checks that the output of a command names only flags that it has and that were given.
func onlyItsFlags(t *testing.T, args []string, output string) {
	t.Helper()
	command, _, err := newRoot().Find(args)
	if err != nil || !command.HasParent() || slices.Contains([]string{"help", "completion", "__complete"}, args[0]) {
		return
	}
	command.InitDefaultHelpFlag()
	for _, m := range hinted.FindAllStringSubmatch(output, -1) {
		name := m[1]
		exists := command.Flags().Lookup(name[min(2, len(name)-1):]) != nil
		if len(name) == 2 {
			exists = command.Flags().ShorthandLookup(name[1:]) != nil
		}
		assert.True(t, exists || slices.Contains(args, name), "%v names %s: %s", args, name, output)
	}
}

// A wrong variable is no error of a command that does not use the server that it names.
func TestCommands_UnusedVariables(t *testing.T) {
	t.Setenv(envServer, "foo")
	dir := t.TempDir()
	write(t, dir+"/a/a.yaml", entry("good", 80))
	assert.Zero(t, command(t, "diff", dir+"/a", dir+"/a").code)
	got := command(t, "get", "se", "--server", "127.0.0.1:1")
	assert.Contains(t, got.stderr, "127.0.0.1:1 is unavailable: nobody listens there")
	got = command(t, "diff", dir+"/none", dir+"/a")
	assert.Equal(t, result{1, "", "error: " + dir + "/none does not exist\n"}, got)
}

// TestTLSOfTheAdminPort requests an earlier version of objects, which only the admin port serves.
func TestTLSOfTheAdminPort(t *testing.T) {
	dir := t.TempDir()
	a := testutil.NewAuthority(t)
	cert, key := a.Loopback(time.Now().Add(time.Hour)).Files(dir)
	write(t, dir+"/ca.pem", a.PEM)
	write(t, dir+"/rules/a.yaml", entry("reviews", 80))
	write(t, dir+"/tributary.yaml", "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0', adminTLS: {certificate: '"+cert+"', key: '"+key+
		"'}}\n"+
		"stateDir: state\nconfigSources: [{address: 'fs://./rules'}]\n")
	s := serving(t, "-c", dir+"/tributary.yaml")
	eventually(t, func() error {
		return contains(command(t, "get", "se", "-A", "-o", "name", "--at", "0s", "--admin", s.admin, "--tls-ca", dir+"/ca.pem").stdout,
			"serviceentry/shop/reviews")
	})
	got := command(t, "diff", "--at", "0s", "--admin", s.admin, "--tls-ca", dir+"/ca.pem")
	require.Zero(t, got.code, got.stderr)
}
