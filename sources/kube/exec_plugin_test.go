package kube

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/kube/kubetest"
)

// TestHangingPlugin has an exec plugin that does not answer until the test lets it.
func TestHangingPlugin(t *testing.T) {
	server, dir := kubetest.StartTLS(t, entries), t.TempDir()
	started, release := filepath.Join(dir, "started"), filepath.Join(dir, "release")
	script := "#!/bin/sh\ntouch " + started + "\nwhile [ ! -e " + release + " ]; do sleep 0.05; done\nrm " + started + "\n"
	require.NoError(t, os.WriteFile(dir+"/plugin", []byte(script), 0o700)) //nolint:gosec // a program
	text := server.Kubeconfig("{exec: {apiVersion: client.authentication.k8s.io/v1, command: " + dir +
		"/plugin, interactiveMode: Never}}")
	require.NoError(t, os.WriteFile(dir+"/kubeconfig", []byte(text), 0o600))
	source, err := New("k8s://"+dir+"/kubeconfig", Settings{})
	require.NoError(t, err)
	require.True(t, source.SkipsVerification())

	rig := start(t, server, source)
	isRunning := func() bool { _, err := os.Stat(started); return err == nil }
	rig.Await("the plugin runs", isRunning)
	rig.Stop() // although the plugin runs
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	rig.Await("the plugin ends", func() bool { return !isRunning() })
}

func TestPlugin_LimitsRequests(t *testing.T) {
	hanging := make(chan struct{})
	transport := newPluginTransport(roundTripper(func(*http.Request) (*http.Response, error) {
		<-hanging
		return nil, errors.New("ended")
	}), "plugin")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "https://cluster/", nil)
	for range maxPluginRequests {
		_, err := transport.RoundTrip(request) //nolint:bodyclose // there is no answer
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "the exec plugin plugin of the kubeconfig hangs")
	}
	_, err := transport.RoundTrip(request) //nolint:bodyclose // there is no answer
	require.EqualError(t, err, "100 requests wait for the exec plugin plugin of the kubeconfig")
	close(hanging)
	require.Eventually(t, func() bool { return len(transport.waiting) == 0 }, time.Minute, time.Millisecond)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
