package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/adsc"
	"tributary/cmd/internal/client"
	"tributary/config"
	"tributary/internal/relay"
	"tributary/internal/testutil"
	"tributary/resource"
	"tributary/server/admin"
)

// A relay without plaintext: xDS and admin over TLS, and the certificates in its status.
func TestServe_TLSOnly(t *testing.T) {
	authority, dir := testutil.NewAuthority(t), t.TempDir()
	cert, key := authority.Loopback(time.Now().Add(time.Hour)).Files(dir)
	pair := config.ServerTLS{Certificate: cert, Key: key}
	r := opened(t, config.Listen{
		XDS: config.ListenOff, XDSTLS: &config.SecureListen{Address: "127.0.0.1:0", ServerTLS: pair}, Admin: "127.0.0.1:0", AdminTLS: &pair,
	})
	trust := &adsc.TLS{Mode: adsc.TLSSimple, CACertificates: authority.PEM}
	schema, _ := resource.SchemaByName("se")
	answer, err := (&client.XDS{
		Server: r.XDSTLS().String(), TLS: trust, Timeout: 10 * time.Second,
		Log: slog.New(slog.DiscardHandler),
	}).Get(t.Context(), schema)
	require.NoError(t, err)
	require.Empty(t, answer.Resources)

	var st admin.Status
	_, err = (&client.Admin{Address: "https://" + r.Admin().String(), TLS: trust, Timeout: 10 * time.Second}).Get(t.Context(), "/debug/status",
		nil, &st)
	require.NoError(t, err)
	require.Len(t, st.Certificates, 2)
	require.Equal(t, "listen.xdsTLS", st.Certificates[0].Listener)
	require.Equal(t, "127.0.0.1", st.Certificates[0].Subject)
	require.Empty(t, st.Certificates[0].Trouble)
	_, err = (&client.Admin{Address: "https://" + r.Admin().String(), Timeout: 10 * time.Second}).Get(t.Context(), "/debug/status", nil, &st)
	require.ErrorContains(t, err, "no trusted authority signed its certificate: give --tls-ca")
}

func TestUnixSockets(t *testing.T) {
	dir := t.TempDir()
	r := opened(t, config.Listen{XDS: "unix://" + filepath.Join(dir, "xds"), Admin: "unix://" + filepath.Join(dir, "admin")})
	var st admin.Status
	_, err := (&client.Admin{Address: "unix://" + filepath.Join(dir, "admin"), Timeout: 10 * time.Second}).Get(t.Context(), "/debug/status",
		nil, &st)
	require.NoError(t, err)
	require.Equal(t, "unix", r.XDS().Network())
	schema, _ := resource.SchemaByName("se")
	_, err = (&client.XDS{
		Server: "unix://" + filepath.Join(dir, "xds"), Timeout: 10 * time.Second,
		Log: slog.New(slog.DiscardHandler),
	}).Get(t.Context(), schema)
	require.NoError(t, err)
}

func TestServe_MissingCertificate(t *testing.T) {
	cfg, err := config.New("test", config.Config{
		Listen: config.Listen{
			XDS: "127.0.0.1:0", Admin: "127.0.0.1:0",
			AdminTLS: &config.ServerTLS{Certificate: "/nowhere/cert", Key: "/nowhere/key"},
		},
		StateDir:      config.StateOff,
		ConfigSources: []config.Source{{Address: "fs://" + t.TempDir()}},
	})
	require.NoError(t, err)
	_, err = relay.Open(t.Context(), cfg, relay.Options{Version: "test", Log: slog.New(slog.DiscardHandler)})
	require.EqualError(t, err, "listen.adminTLS: open /nowhere/cert: no such file or directory")
	var bad *relay.ConfigError
	require.ErrorAs(t, err, &bad)
}

// opened is a relay that runs and listens there, and has no errors to log.
func opened(t *testing.T, listen config.Listen) *relay.Relay {
	t.Helper()
	errs := new(testutil.Buffer)
	cfg, err := config.New("test", config.Config{
		Listen: listen, StateDir: config.StateOff,
		ConfigSources: []config.Source{{Address: "fs://" + t.TempDir()}},
	})
	require.NoError(t, err)
	r, err := relay.Open(t.Context(), cfg, relay.Options{
		Version: "test",
		Log:     slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		require.Empty(t, errs.String())
	})
	return r
}
