package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"tributary/internal/spiffe"
	"tributary/internal/spiffe/spiffetest"
	"tributary/internal/testutil"
)

const relayID = "spiffe://example.org/relay"

// fromAPI are the certificates of a listener that asks clients for theirs.
func fromAPI(t *testing.T, api *spiffetest.API) (*Certificates, *testutil.Buffer) {
	t.Helper()
	buffer := &testutil.Buffer{}
	certificates, err := Load(t.Context(), "listen.xdsTLS", Files{
		Certificate: spiffe.Scheme, ClientCAs: spiffe.Scheme, WorkloadAPI: api.Address(),
		Client: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}, buffer.Logger())
	require.NoError(t, err)
	return certificates, buffer
}

// followed runs the certificate until the function that is returned is called.
func followed(t *testing.T, certificates *Certificates) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- certificates.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

// workload is a client with an X509-SVID, which trusts any server: that one is looked at by its serial number.
func workload(p testutil.Pair) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{p.TLS()}, MinVersion: tls.VersionTLS12}
}

func TestWorkloadAPI_CertificateReplaced(t *testing.T) {
	t.Parallel()
	authority, foreign, api := testutil.NewAuthority(t), testutil.NewAuthority(t), spiffetest.New(t)
	oldPair, newPair := spiffetest.Sign(authority, relayID, time.Time{}), spiffetest.Sign(authority, relayID, time.Time{})
	api.Give(authority, spiffetest.Domains{"spiffe://other.test": foreign}, oldPair)
	c, buffer := fromAPI(t, api)
	trusts := make(chan struct{}, 10)
	c.OnChange(func() { trusts <- struct{}{} })
	defer followed(t, c)()
	ours, federated := spiffetest.Sign(authority, "spiffe://example.org/a", time.Time{}),
		spiffetest.Sign(foreign, "spiffe://other.test/a", time.Time{})
	for _, client := range []testutil.Pair{ours, federated} {
		state, err := shake(t, c, workload(client))
		require.NoError(t, err)
		require.Equal(t, oldPair.Leaf.SerialNumber, state.PeerCertificates[0].SerialNumber)
		require.NoError(t, c.Trusts([]*x509.Certificate{client.Leaf}))
	}
	_, err := shake(t, c, workload(spiffetest.Sign(foreign, "spiffe://example.org/a", time.Time{})))
	require.Error(t, err, "a CA of another trust domain cannot sign for this one")
	_, err = shake(t, c, workload(authority.Sign(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})))
	require.Error(t, err, "it is no SPIFFE ID")

	api.Give(authority, spiffetest.Domains{"spiffe://other.test": foreign}, newPair)
	require.Eventually(t, func() bool {
		state, err := shake(t, c, workload(ours))
		return err == nil && state.PeerCertificates[0].SerialNumber.Cmp(newPair.Leaf.SerialNumber) == 0
	}, 20*time.Second, 50*time.Millisecond)
	require.Empty(t, trusts, "the same are trusted")
	require.InDelta(t, float64(newPair.Leaf.NotAfter.Unix()), float64(c.Status().NotAfter.Unix()), 0)

	api.Give(authority, nil, newPair)
	<-trusts
	require.ErrorContains(t, c.Trusts([]*x509.Certificate{federated.Leaf}), `no X.509 bundle for trust domain "other.test"`)
	require.NoError(t, c.Trusts([]*x509.Certificate{ours.Leaf}))
	_, err = shake(t, c, workload(federated))
	require.Error(t, err)
	require.NotContains(t, buffer.String(), "ERROR")
	require.NotContains(t, buffer.String(), "expires soon", "they live for an hour")
}

func TestWorkloadAPI_IdentityArrivesLater(t *testing.T) {
	t.Parallel()
	authority, api := testutil.NewAuthority(t), spiffetest.New(t)
	c, log := fromAPI(t, api)
	require.Contains(t, log.String(), "no certificate yet")
	require.Contains(t, log.String(), "gives this process no identity")
	client := workload(spiffetest.Sign(authority, "spiffe://example.org/a", time.Time{}))
	_, err := shake(t, c, client)
	require.Error(t, err)
	require.Error(t, c.Trusts([]*x509.Certificate{client.Certificates[0].Leaf}))
	status := c.Status()
	require.Zero(t, status.NotAfter)
	require.False(t, status.Expired)
	require.NotEmpty(t, status.Trouble)
	require.Equal(t, 1, promtest.CollectAndCount(Metrics{c}), "a missing certificate has no expiry")

	defer followed(t, c)()
	api.Give(authority, nil, spiffetest.Sign(authority, relayID, time.Time{}))
	require.Eventually(t, func() bool { _, err := shake(t, c, client); return err == nil }, 20*time.Second, 50*time.Millisecond)
	require.Empty(t, c.Status().Trouble)
	require.Equal(t, 2, promtest.CollectAndCount(Metrics{c}))
}

func TestWorkloadAPI_Unreachable(t *testing.T) {
	t.Parallel()
	authority, api := testutil.NewAuthority(t), spiffetest.New(t)
	pair := spiffetest.Sign(authority, relayID, time.Time{})
	api.Give(authority, nil, pair)
	certificates, buffer := fromAPI(t, api)
	defer followed(t, certificates)()
	api.Stop()
	require.Eventually(t, func() bool { return certificates.Status().Trouble != "" }, 20*time.Second, 20*time.Millisecond)
	require.Contains(t, certificates.Status().Trouble, "the SPIFFE Workload API at "+api.Address())
	require.Contains(t, buffer.String(), "the previous certificate stays in force")
	_, err := shake(t, certificates, workload(spiffetest.Sign(authority, "spiffe://example.org/a", time.Time{})))
	require.NoError(t, err)

	api.Start()
	require.Eventually(t, func() bool { return certificates.Status().Trouble == "" }, 40*time.Second, 20*time.Millisecond)
	require.Contains(t, buffer.String(), "valid again")
}

// An identity that the API does not give is no other one.
func TestWorkloadAPI_DifferentIdentityRefused(t *testing.T) {
	authority, api := testutil.NewAuthority(t), spiffetest.New(t)
	api.Give(authority, nil, spiffetest.Sign(authority, relayID, time.Time{}))
	log := &testutil.Buffer{}
	_, err := Load(t.Context(), "listen.xdsTLS", Files{Certificate: relayID + "/2", WorkloadAPI: api.Address(), MinVersion: tls.VersionTLS12},
		log.Logger())
	require.ErrorContains(t, err, "certificate spiffe://example.org/relay/2: the Workload API does not give this process")
}

// The end of a certificate of the Workload API is warned of when it should have been exchanged, and once more when it is there.
func TestWorkloadAPI_ExpiringCertificateWarned(t *testing.T) {
	authority, api := testutil.NewAuthority(t), spiffetest.New(t)
	expiring := spiffetest.Sign(authority, relayID, time.Now().Add(2*time.Hour)) // a lifetime of four hours; two are over
	api.Give(authority, nil, expiring)
	c, buffer := fromAPI(t, api)
	for minute := range 180 {
		c.refresh(time.Now().Add(time.Duration(minute) * time.Minute))
		if minute == 50 {
			require.Empty(t, buffer.String())
		}
	}
	require.Equal(t, 1, bytes.Count([]byte(buffer.String()), []byte("it expires soon")), buffer)
	require.Equal(t, 1, bytes.Count([]byte(buffer.String()), []byte("it has expired")), buffer)
}
