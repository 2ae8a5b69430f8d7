package adsc_test

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"tributary/adsc"
	"tributary/internal/spiffe"
	"tributary/internal/spiffe/spiffetest"
	"tributary/internal/testutil"
)

// Certificates of a SPIFFE Workload API on both sides: the client reads them for each connection, and keeps the last
// ones if the API is away.
func TestTLS_UsesWorkloadAPI(t *testing.T) {
	authority, otherAuthority, api := testutil.NewAuthority(t), testutil.NewAuthority(t), spiffetest.New(t)
	api.Give(authority, spiffetest.Domains{"spiffe://other.test": otherAuthority},
		spiffetest.Sign(authority, "spiffe://example.org/client", time.Time{}))
	server := func(issuer *testutil.Authority, id string) string {
		return respondsOnce(t).Serve(t, grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(),
			Certificates: []tls.Certificate{spiffetest.Sign(issuer, id, time.Time{}).TLS()},
		})))
	}
	const istiod, federated = "spiffe://example.org/istiod", "spiffe://other.test/istiod"
	ours := server(authority, istiod)
	settings := func(names ...string) *adsc.TLS {
		return &adsc.TLS{
			Mode: adsc.TLSMutual, ClientCertificate: spiffe.Scheme, CACertificates: spiffe.Scheme,
			SubjectAltNames: names, WorkloadAPI: spiffe.New(api.Address()),
		}
	}
	require.NoError(t, outcome(t, ours, settings(istiod)))
	require.ErrorContains(t, outcome(t, ours, settings("spiffe://example.org/else")), "want one of spiffe://example.org/else")
	require.NoError(t, outcome(t, server(otherAuthority, federated), settings(federated)))
	narrow := settings(federated)
	narrow.CACertificates = "spiffe://example.org"
	require.ErrorContains(t, outcome(t, server(otherAuthority, federated), narrow), "is not of the trust domain spiffe://example.org")
	require.ErrorContains(t, outcome(t, server(otherAuthority, istiod), settings(istiod)), "no trusted authority signed its certificate",
		"an authority of another trust domain does not sign for ours")
	another := settings(istiod)
	another.ClientCertificate = "spiffe://example.org/else"
	require.ErrorContains(t, outcome(t, ours, another), "clientCertificate: the Workload API does not give this process "+
		"spiffe://example.org/else")

	remembers := settings(istiod)
	require.NoError(t, outcome(t, ours, remembers))
	api.Stop()
	require.NoError(t, outcome(t, ours, remembers))
	require.ErrorContains(t, outcome(t, ours, settings(istiod)), "the SPIFFE Workload API at "+api.Address()+" cannot be reached")
}

func TestWorkloadAPISettings_Invalid(t *testing.T) {
	for want, settings := range map[string]adsc.TLS{
		"privateKey: the Workload API gives the key":        {Mode: adsc.TLSMutual, ClientCertificate: "spiffe://", PrivateKey: "a"},
		`clientCertificate: "spiffe://a" is a trust domain`: {Mode: adsc.TLSMutual, ClientCertificate: "spiffe://a"},
		`caCertificates: "spiffe://a/b" is an identity`:     {Mode: adsc.TLSSimple, CACertificates: "spiffe://a/b"},
		"subjectAltNames: missing; name the SPIFFE ID":      {Mode: adsc.TLSSimple, CACertificates: "spiffe://"},
		"workloadAPI: want unix:///PATH or tcp://IP:PORT, got \"a\"": {
			Mode: adsc.TLSSimple, CACertificates: "spiffe://",
			SubjectAltNames: []string{"a"}, WorkloadAPI: spiffe.New("a"),
		},
		"workloadAPI: nothing is asked of it": {Mode: adsc.TLSSimple, WorkloadAPI: spiffe.New("unix:///a")},
	} {
		require.ErrorContains(t, settings.Check(), want)
	}
}
