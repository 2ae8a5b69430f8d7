package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// lines are those of the log with a message, each as its keys in JSON.
func lines(t *testing.T, log interface{ String() string }, msg string) (matching []string) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == msg {
			delete(entry, "time")
			text, err := json.Marshal(entry)
			require.NoError(t, err)
			matching = append(matching, string(text))
		}
	}
	return matching
}

// TestServe_LogsEvents looks in the log of a program for one line of each event, with its cause.
func TestServe_LogsEvents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := entry("e-0", 80)
	for i := 1; i < 12; i++ {
		text += "---\n" + entry(fmt.Sprint("e-", i), 80)
	}
	write(t, dir+"/rules/many.yaml", text)
	write(t, dir+"/rules/one.yaml", entry("one", 80))
	config := "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nlimits: {streams: 1}\nstateDir: 'off'\nconfigSources: [{name: rules, " +
		"address: 'fs://./rules'}]\n"
	write(t, dir+"/tributary.yaml", config)
	child := program(t, dir, "serve", "--log-format", "json", "-c", "tributary.yaml")
	server := listening(t, &child.stderr)
	server.awaitReady(t)
	says := func(msg string, parts ...string) {
		t.Helper()
		eventually(t, func() error {
			last := fmt.Errorf("no line %q in:\n%s", msg, server.log.String())
			for _, line := range lines(t, server.log, msg) {
				last = nil
				for _, part := range parts {
					if err := contains(line, part); err != nil {
						last = err
					}
				}
				if last == nil {
					return nil
				}
			}
			return last
		})
	}
	says("source changed", `"added":13`, `"more":8`, `"places":"`, `"source":"rules"`)

	// A file that changes, and one that goes.
	write(t, dir+"/rules/one.yaml", entry("one", 81))
	says("source changed", `"updated":1`, `"objects":"~ServiceEntry shop/one"`, `one.yaml:1`)
	require.NoError(t, os.Remove(dir+"/rules/one.yaml"))
	says("source changed", `"deleted":1`, `"objects":"-ServiceEntry shop/one"`, `one.yaml:1`)

	// Clients that come, are refused, and go.
	var events testutil.Buffer
	stop := commandUntil(t, &events, "watch", "se", "--server", server.xds, "--node-id", "watcher")
	eventually(t, func() error { return contains(events.String(), "shop/e-0") })
	says("client connected", `"node_id":"watcher"`, `"peer":"127.0.0.1:`)
	command(t, "get", "se", "--server", server.xds, "--node-id", "late", "--timeout", "2s")
	says("stream refused", `"peer":"127.0.0.1:`, `"err":"too many streams: the limit is 1"`)
	stop()
	says("client disconnected", `"node_id":"watcher"`, `"after":`, `"why":"`)

	// A loss is held, and a person releases it.
	write(t, dir+"/rules/many.yaml", entry("e-0", 80))
	says("loss held: objects the source dropped stay served until the hold ends or is released", `"source":"rules"`)
	require.Zero(t, command(t, "guard", "release", "rules", "--admin", server.admin).code)
	says("hold ended", userAtHost(), "from 127.0.0.1:")
	says("source changed", `"deleted":11`, `"end_of_hold":"`, `-ServiceEntry shop/e-1`, `"more":6`)

	// Reloads, with their callers.
	require.Zero(t, command(t, "reload", "--admin", server.admin).code)
	says("configuration reloaded", `"by":"`+userAtHost()+", from 127.0.0.1:", `"sources":"as they were"`)
	child.signal(t, syscall.SIGHUP)
	says("configuration reloaded", `"by":"SIGHUP"`)
	write(t, dir+"/tributary.yaml", "nothing: here\n")
	require.Equal(t, 78, command(t, "reload", "--admin", server.admin).code)
	says("configuration refused, the one in force stays", `"by":"`+userAtHost()+", from 127.0.0.1:")

	// One line for each: no commit is logged twice.
	matches := regexp.MustCompile(`~ServiceEntry shop/one`).FindAllString(server.log.String(), -1)
	require.Len(t, matches, 1)
}
