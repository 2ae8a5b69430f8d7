package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/internal/testutil"
)

// An identity of a connection ends with the credential that proved it.

// certified is a certificate of a client, of an authority.
func certified(t *testing.T, authority *testutil.Authority, expires time.Time) tls.Certificate {
	t.Helper()
	id, err := url.Parse("spiffe://e/a")
	require.NoError(t, err)
	return authority.Sign(&x509.Certificate{
		URIs: []*url.URL{id}, NotAfter: expires,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}).TLS()
}

// secured runs a relay whose server has a certificate of an authority, and which trusts clients of these authorities.
func secured(t *testing.T, authority *testutil.Authority, clients, settings string) *rig {
	t.Helper()
	dir := t.TempDir()
	fill(t, dir, "rules/all.yaml: prod/p*2")
	authority.Loopback(time.Time{}).Files(dir)
	write(t, dir+"/ca.pem", clients)
	write(t, dir+"/tributary.yaml", settings+"\nstateDir: 'off'\nconfigSources: [{address: 'fs://./rules'}]\n")
	r := startAt(t, dir, "off")
	r.awaitReady(t)
	return r
}

// secureXDS has only a port with TLS, for clients of one trust domain.
const secureXDS = `
listen: {xds: 'off', admin: '127.0.0.1:0',
  xdsTLS: {address: '127.0.0.1:0', certificate: cert.pem, key: key.pem, clientCAs: ca.pem, clientAuth: require}}
access: [{who: {spiffe: ['spiffe://e/*']}}]`

// clientTLS has the certificates of a client of an authority's servers.
func clientTLS(authority *testutil.Authority, certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12, Certificates: certificates}
}

// dialTLS connects to the xDS port.
func (r *rig) dialTLS(t *testing.T, config *tls.Config) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(r.XDSTLS().String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func open(t *testing.T, conn *grpc.ClientConn) *subscriber {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	require.NoError(t, err)
	_ = s.Send(&discovery.DiscoveryRequest{TypeUrl: typeURLs[0], Node: &corev3.Node{Id: "n"}}) // a refusal is seen by the answer
	return &subscriber{s}
}

func TestStream_RemovedAuthority(t *testing.T) {
	t.Parallel()
	authority, second := testutil.NewAuthority(t), testutil.NewAuthority(t)
	r := secured(t, authority, authority.PEM+second.PEM, secureXDS)
	conn := r.dialTLS(t, clientTLS(authority, certified(t, second, time.Time{})))
	first := open(t, conn)
	first.gets(t, 2)
	write(t, r.dir+"/ca.pem", authority.PEM)
	first.endsWith(t, codes.Unauthenticated, "")
	open(t, conn).endsWith(t, codes.Unauthenticated, "") // on the connection that is open
}

func TestAdmin_RemovedAuthority(t *testing.T) {
	t.Parallel()
	dir, authority, second := t.TempDir(), testutil.NewAuthority(t), testutil.NewAuthority(t)
	fill(t, dir, "rules/all.yaml: prod/p*2")
	authority.Loopback(time.Time{}).Files(dir)
	write(t, dir+"/ca.pem", authority.PEM+second.PEM)
	write(t, dir+"/tributary.yaml", `
listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0', adminTLS: {certificate: cert.pem, key: key.pem, clientCAs: ca.pem, clientAuth: require}}
stateDir: 'off'
configSources: [{address: 'fs://./rules'}]
`)
	rig := start(t, dir)
	client := &http.Client{Transport: &http.Transport{
		MaxConnsPerHost: 1, TLSClientConfig: clientTLS(authority, certified(t, second, time.Time{})),
	}}
	t.Cleanup(client.CloseIdleConnections)
	post := func() int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+rig.Admin().String()+"/-/reload", nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body) // so that the connection goes on
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		return resp.StatusCode
	}
	require.Equal(t, http.StatusOK, post())
	write(t, dir+"/ca.pem", authority.PEM)
	await(t, func() bool { return post() == http.StatusUnauthorized })
}

// A unix socket's other end is named as its owner likes.
func TestAccess_UnixSocketHasNoAddress(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	fill(t, dir, "rules/all.yaml: prod/p*2 secret/s*3")
	write(t, dir+"/tributary.yaml", `
listen: {xds: 'unix://`+dir+`/x.sock?mode=0666', admin: '127.0.0.1:0'}
stateDir: 'off'
access: [{who: {cidr: [10.1.0.0/16]}}, {who: {socket: true}, allow: {namespaces: [prod]}}]
configSources: [{address: 'fs://./rules'}]
`)
	r := startAt(t, dir, "unix://"+dir+"/x.sock?mode=0666")
	r.awaitReady(t)
	for _, forwarded := range []string{"", "10.1.2.3:80"} {
		conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				var dialer net.Dialer
				if forwarded != "" {
					_ = os.Remove(forwarded) // of a dial before
					dialer.LocalAddr = &net.UnixAddr{Name: forwarded, Net: "unix"}
				}
				return dialer.DialContext(ctx, "unix", dir+"/x.sock")
			}))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		resp, err := open(t, conn).stream.Recv()
		require.NoError(t, err)
		require.Len(t, resp.GetResources(), 2, forwarded)
	}
}

// TestStream_EndsWithExpiredAuthority: the expiry of an authority ends the streams of its clients.
func TestStream_EndsWithExpiredAuthority(t *testing.T) {
	t.Parallel()
	authority := testutil.NewAuthority(t)
	short := authority.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "short"}, NotAfter: time.Now().Add(5 * time.Second), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}).Authority()
	r := secured(t, authority, short.PEM, secureXDS)
	s := open(t, r.dialTLS(t, clientTLS(authority, certified(t, short, time.Time{}))))
	s.gets(t, 2)
	s.endsWith(t, codes.Unauthenticated, "expired")
}

// One reload adds a source and the rule that hides it, or removes both: no client gets an object that one of the two
// does not allow.
func TestReload_SourcesWithRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, "one/all.yaml: prod/p*2", "two/all.yaml: secret/planted*20")
	token, line := newToken(t, "web")
	write(t, dir+"/tokens", line)
	configure := func(withSecret bool) {
		allow, second := "", ""
		if withSecret {
			allow, second = ", allow: {namespaces: [prod]}", "- {name: two, address: 'fs://"+dir+"/two', guard: off}\n"
		}
		write(t, dir+"/tributary.yaml", `listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}
stateDir: 'off'
identity: {tokens: tokens}
limits: {refusalDelay: 1ms}
access: [{who: {token: [web]}`+allow+`}]
configSources:
- {name: one, address: 'fs://`+dir+`/one', guard: off}
`+second)
	}
	configure(false)
	rig := startReady(t, dir)
	for i := range 40 {
		var subscribers []*subscriber
		for range 3 {
			s := subscribe(t, rig, token, "n")
			s.gets(t, 2)
			subscribers = append(subscribers, s)
		}
		configure(i%2 == 0)
		rig.reloadFile(t)
		for _, s := range subscribers {
			if i%2 == 1 { // it may see more with its next stream, and goes on
				continue
			}
			for {
				resp, err := s.stream.Recv()
				if err != nil {
					break
				}
				require.NotContains(t, fmt.Sprint(resp), "planted", "reload %d", i)
			}
		}
	}
}
