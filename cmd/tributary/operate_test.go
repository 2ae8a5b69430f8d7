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
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	var events testutil.Buffer
	defer commandUntil(t, &events, "watch", "se", "--server", s.xds, "--node-id", "watcher")()
	stream := func(exclude string) (id string) {
		eventually(t, func() error {
			_, body := s.page(t, "/debug/clients")
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
		ended := command(t, "client", "kick", "watcher", "--admin", s.admin)
		if ended != (result{0, "1 stream ended; the client reconnects\n", ""}) {
			return errors.New(ended.stderr)
		}
		return nil
	})
	stream(before)
	got := command(t, "client", "kick", "nobody", "--admin", s.admin)
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "no client with this node ID is connected")
	require.Contains(t, s.log.String(), "streams of a client ended on request")
}

// TestLogLevel_ChangesAtRunTime checks that the level takes effect at once.
func TestLogLevel_ChangesAtRunTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/reviews.yaml", entry("reviews", 80))
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	require.Equal(t, "log level ERROR, before INFO\n", command(t, "log-level", "error", "--admin", s.admin).stdout)
	before := s.log.String()
	require.Zero(t, command(t, "get", "se", "-A", "--server", s.xds).code)
	require.Equal(t, before, s.log.String(), "clients that come and go are logged at level INFO")
	require.Equal(t, "log level INFO, before ERROR\n", command(t, "log-level", "info", "--admin", s.admin).stdout)
	eventually(t, func() error {
		require.Zero(t, command(t, "get", "se", "-A", "--server", s.xds).code)
		if s.log.String() == before {
			return errors.New("no new line")
		}
		return nil
	})
	got := command(t, "log-level", "loud", "--admin", s.admin)
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "debug, info, warn or error")
}
