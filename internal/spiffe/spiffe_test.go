package spiffe_test

import (
	"context"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/internal/spiffe"
	"tributary/internal/spiffe/spiffetest"
	"tributary/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const relay = "spiffe://example.org/relay"

func TestNames(t *testing.T) {
	for _, c := range []struct {
		name               string
		certificate, trust string // the expected error
	}{
		{"spiffe://", "", ""},
		{relay, "", "is an identity; a trust domain is spiffe://example.org"},
		{"spiffe://example.org", "is a trust domain", ""},
		{"spiffe://Example.org/relay", "trust domain characters are limited", "trust domain characters are limited"},
		{"spiffe://example.org/a//b", "path cannot contain empty segments", "path cannot contain empty segments"},
		{"spiffe://example.org/", "path cannot have a trailing slash", "path cannot have a trailing slash"},
	} {
		for want, got := range map[string]struct {
			err  error
			want string
		}{"certificate": {spiffe.CheckCertificate(c.name), c.certificate}, "trust": {spiffe.CheckTrust(c.name), c.trust}} {
			if got.want == "" {
				require.NoError(t, got.err, "%s as %s", c.name, want)
			} else {
				require.ErrorContains(t, got.err, got.want, "%s as %s", c.name, want)
			}
		}
	}
	require.False(t, spiffe.Named("/etc/spiffe.pem"))
	require.NoError(t, spiffe.CheckAddress("unix:///run/spire/agent.sock"))
	require.NoError(t, spiffe.CheckAddress("tcp://127.0.0.1:8081"))
	for _, bad := range []string{"/run/spire/agent.sock", "unix://agent.sock", "unix:agent.sock", "tcp://localhost:1", "http://x"} {
		require.ErrorContains(t, spiffe.CheckAddress(bad), "want unix:///PATH or tcp://IP:PORT", bad)
	}
}

func TestAPI_AddressFromEnvironment(t *testing.T) {
	authority, server := testutil.NewAuthority(t), spiffetest.New(t)
	server.Give(authority, nil, spiffetest.Sign(authority, relay, time.Time{}))
	t.Setenv("SPIFFE_ENDPOINT_SOCKET", server.Address())
	_, err := spiffe.New("").Ask(t.Context())
	require.NoError(t, err)
	t.Setenv("SPIFFE_ENDPOINT_SOCKET", "")
	_, err = spiffe.New("").Ask(t.Context())
	require.EqualError(t, err, "there is no workloadAPI, and $SPIFFE_ENDPOINT_SOCKET is not set")
}

func TestCredentials_CertificateByName(t *testing.T) {
	authority, server := testutil.NewAuthority(t), spiffetest.New(t)
	server.Give(authority, nil, spiffetest.Sign(authority, relay, time.Time{}), spiffetest.Sign(authority, relay+"/2", time.Time{}))
	answer, err := spiffe.New(server.Address()).Ask(t.Context())
	require.NoError(t, err)
	for name, want := range map[string]string{spiffe.Scheme: relay, relay: relay, relay + "/2": relay + "/2"} {
		c, err := answer.Certificate(name)
		require.NoError(t, err)
		require.Equal(t, want, c.Leaf.URIs[0].String())
	}
	_, err = answer.Certificate(relay + "/3")
	require.EqualError(t, err, "the Workload API does not give this process spiffe://example.org/relay/3; it gives "+
		"spiffe://example.org/relay, spiffe://example.org/relay/2")
}

// The authority of one trust domain signs for no other, although both are trusted.
func TestCredentials_VerifyByTrustDomain(t *testing.T) {
	authority, second, foreign, server := testutil.NewAuthority(t), testutil.NewAuthority(t), testutil.NewAuthority(t), spiffetest.New(t)
	server.Give(authority, spiffetest.Domains{"spiffe://other.test": second}, spiffetest.Sign(authority, relay, time.Time{}))
	answer, err := spiffe.New(server.Address()).Ask(t.Context())
	require.NoError(t, err)
	certificate := func(issuer *testutil.Authority, id string, notAfter time.Time) []*x509.Certificate {
		return []*x509.Certificate{spiffetest.Sign(issuer, id, notAfter).Leaf}
	}
	for _, c := range []struct {
		name, trust string
		chain       []*x509.Certificate
		want        string
	}{
		{"ours", spiffe.Scheme, certificate(authority, "spiffe://example.org/a", time.Time{}), ""},
		{"ours by name", "spiffe://example.org", certificate(authority, "spiffe://example.org/a", time.Time{}), ""},
		{"a federated one", spiffe.Scheme, certificate(second, "spiffe://other.test/a", time.Time{}), ""},
		{
			"a federated one, and ours alone is trusted", "spiffe://example.org", certificate(second, "spiffe://other.test/a", time.Time{}),
			"spiffe://other.test/a is not of the trust domain spiffe://example.org",
		},
		{
			"ours, signed by another domain", spiffe.Scheme, certificate(second, "spiffe://example.org/a", time.Time{}),
			"certificate signed by unknown authority",
		},
		{
			"another, signed by ours", spiffe.Scheme, certificate(authority, "spiffe://other.test/a", time.Time{}),
			"certificate signed by unknown authority",
		},
		{
			"a foreign domain", spiffe.Scheme, certificate(foreign, "spiffe://foreign.test/a", time.Time{}),
			`no X.509 bundle for trust domain "foreign.test"`,
		},
		{"expired", spiffe.Scheme, certificate(authority, "spiffe://example.org/a", time.Now().Add(-time.Minute)), "expired"},
		{"no SPIFFE ID", spiffe.Scheme, []*x509.Certificate{authority.Sign(&x509.Certificate{}).Leaf}, "certificate contains no URI SAN"},
		{"nothing", spiffe.Scheme, nil, "there is no certificate"},
	} {
		err := answer.Verify(c.trust, c.chain)
		if c.want == "" {
			require.NoError(t, err, c.name)
		} else {
			require.ErrorContains(t, err, c.want, c.name)
		}
	}
}

// The last answer serves on while the API is away, as long as it is valid.
func TestAPI_UnreachableKeepsLastCredentials(t *testing.T) {
	authority, server := testutil.NewAuthority(t), spiffetest.New(t)
	api := spiffe.New(server.Address())
	_, err := api.Ask(t.Context())
	require.ErrorContains(t, err, "gives this process no identity (no identity issued): is it registered there?")

	signed := spiffetest.Sign(authority, relay, time.Time{})
	server.Give(authority, nil, signed)
	first, err := api.Ask(t.Context())
	require.NoError(t, err)
	server.Give(authority, nil, signed)
	repeated, err := api.Ask(t.Context())
	require.NoError(t, err)
	require.Same(t, first, repeated, "a repeated certificate counts once")

	server.Stop()
	last, err := api.Ask(t.Context())
	require.NoError(t, err)
	require.Same(t, first, last)
	_, err = api.Last()
	require.ErrorContains(t, err, "cannot be reached")

	server.Start()
	server.Give(authority, nil, spiffetest.Sign(authority, relay, time.Now().Add(-time.Second)))
	_, err = api.Ask(t.Context())
	require.NoError(t, err, "whoever is shown it says that it has expired")
	server.Stop()
	_, err = api.Ask(t.Context())
	require.ErrorContains(t, err, "cannot be reached", "rather than that its certificate has expired")
}

func TestAPI_RunFollowsChanges(t *testing.T) {
	authority, other, server := testutil.NewAuthority(t), testutil.NewAuthority(t), spiffetest.New(t)
	server.Give(authority, nil, spiffetest.Sign(authority, relay, time.Time{}))
	api := spiffe.New(server.Address())
	first, err := api.Ask(t.Context())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		api.Run(ctx)
	}()
	last := func(unlike *spiffe.Credentials) (now *spiffe.Credentials) {
		require.Eventually(t, func() bool {
			now, err = api.Last()
			return now != unlike && err == nil
		}, 20*time.Second, 5*time.Millisecond)
		return now
	}
	server.Give(authority, nil, spiffetest.Sign(authority, relay, time.Time{}))
	second := last(first)
	require.True(t, second.SameTrust(first))
	server.Give(authority, spiffetest.Domains{"spiffe://other.test": other}, spiffetest.Sign(authority, relay, time.Time{}))
	third := last(second)
	require.False(t, third.SameTrust(second))

	server.Stop()
	require.Eventually(t, func() bool { _, err := api.Last(); return err != nil }, 20*time.Second, 5*time.Millisecond)
	server.Start()
	server.Give(authority, nil, spiffetest.Sign(authority, relay, time.Time{}))
	last(third)
	stop()
	<-ended
}
