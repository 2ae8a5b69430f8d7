package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// TestClientKick_Reconnects checks that a client reconnects after its streams were ended, and that unknown nodes are errors.
func TestClientKick_Reconnects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/reviews.yaml", entry("reviews", 80))
	server := serving(t, served(dir)...)
	server.awaitReady(t)
	var events testutil.Buffer
	defer commandUntil(t, &events, "watch", "se", "--server", server.xds, "--node-id", "watcher")()
	stream := func(exclude string) (id string) {
		eventually(t, func() error {
			_, body := server.page(t, "/debug/clients")
			match := regexp.MustCompile(`"stream": (\d+)`).FindStringSubmatch(body)
			if match == nil || match[1] == exclude || !strings.Contains(body, "watcher") {
				return errors.New(body)
			}
			id = match[1]
			return nil
		})
		return id
	}
	before := stream("")
	eventually(t, func() error { // between its first two streams the command has none
		ended := command(t, "client", "kick", "watcher", "--admin", server.admin)
		if ended != (result{0, "1 stream ended; the client reconnects\n", ""}) {
			return errors.New(ended.stderr)
		}
		return nil
	})
	stream(before)
	got := command(t, "client", "kick", "nobody", "--admin", server.admin)
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "no client with this node ID is connected")
	require.Contains(t, server.log.String(), "streams of a client ended on request")
}
