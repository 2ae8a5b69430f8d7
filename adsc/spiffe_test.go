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

// Certificates of a SPIFFE Workload API on both sides: the client asks for each connection, and goes on with what was said last when nobody
// answers.
func TestTLSOfAWorkloadAPI(t *testing.T) {
	own, other, api := testutil.NewAuthority(t), testutil.NewAuthority(t), spiffetest.New(t)
	api.Give(own, spiffetest.Domains{"spiffe://other.test": other}, spiffetest.Sign(own, "spiffe://example.org/client", time.Time{}))
	server := func(by *testutil.Authority, id string) string {
		return serve(t, answering(t), grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: own.Pool(),
			Certificates: []tls.Certificate{spiffetest.Sign(by, id, time.Time{}).TLS()},
		})))
	}
	const istiod, federated = "spiffe://example.org/istiod", "spiffe://other.test/istiod"
	ours := server(own, istiod)
	settings := func(names ...string) *adsc.TLS {
		return &adsc.TLS{
			Mode: adsc.TLSMutual, ClientCertificate: spiffe.Scheme, CACertificates: spiffe.Scheme,
			SubjectAltNames: names, WorkloadAPI: spiffe.New(api.Address()),
		}
	}
	require.NoError(t, outcome(t, ours, settings(istiod)))
	require.ErrorContains(t, outcome(t, ours, settings("spiffe://example.org/else")), "want one of spiffe://example.org/else")
	require.NoError(t, outcome(t, server(other, federated), settings(federated)))
	narrow := settings(federated)
	narrow.CACertificates = "spiffe://example.org"
	require.ErrorContains(t, outcome(t, server(other, federated), narrow), "is not of the trust domain spiffe://example.org")
	require.ErrorContains(t, outcome(t, server(other, istiod), settings(istiod)), "no trusted authority signed its certificate",
		"who signs for another trust domain does not speak for ours")
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

func TestTLSOfAWorkloadAPIThatMakesNoSense(t *testing.T) {
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
