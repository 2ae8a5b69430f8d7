package main

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTiers has a tributary read from another, and the first then told to read from the second.
func TestTiers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/reviews.yaml", entry("reviews", 80))
	file := t.TempDir() + "/t.yaml"
	sources := "configSources:\n- {name: rules, address: fs://" + dir + "}\n"
	write(t, file, "listen: {xds: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\n"+sources)
	server := serving(t, "--config", file)
	server.awaitReady(t)
	below := serving(t, append(freely, "--config-source", "xds://"+server.xds)...)
	below.awaitReady(t)
	seen := func(name string) func() error {
		return func() error {
			if got := command(t, "get", "se", "-A", "--server", below.xds); !strings.Contains(got.stdout, name) {
				return errors.New(got.stdout + got.stderr)
			}
			return nil
		}
	}
	eventually(t, seen("reviews"))
	write(t, dir+"/ratings.yaml", entry("ratings", 80))
	eventually(t, seen("ratings"))

	write(t, file, "listen: {xds: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\n"+sources+"- {name: loop, address: \"xds://"+below.xds+"\"}\n")
	status, body := server.post(t, "/-/reload")
	require.Equal(t, http.StatusOK, status, body)
	eventually(t, func() error {
		if _, body := server.page(t, "/debug/status"); !strings.Contains(body, "a loop: ") {
			return errors.New(body)
		}
		return nil
	})
	require.NoError(t, seen("reviews")())
}
