package relay

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
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
	"tributary/server/identity"
)

// An identity of a connection ends with the credential that proved it.

// certified is a certificate of a client, of an authority.
func certified(t *testing.T, authority *testutil.Authority) tls.Certificate {
	id, err := url.Parse("spiffe://e/b")
	require.NoError(t, err)
	return authority.Sign(&x509.Certificate{
		URIs: []*url.URL{id}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}).TLS()
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
	dir, authority, second := t.TempDir(), testutil.NewAuthority(t), testutil.NewAuthority(t)
	write(t, dir+"/rules/all.yaml", entries("prod", "p", 2))
	authority.Loopback(time.Time{}).Files(dir)
	write(t, dir+"/ca.pem", authority.PEM+second.PEM)
	write(t, dir+"/tributary.yaml", `
listen: {xds: 'off', admin: '127.0.0.1:0', xdsTLS: {address: '127.0.0.1:0', certificate: cert.pem, key: key.pem, clientCAs: ca.pem, `+
		`clientAuth: require}}
stateDir: 'off'
access: [{who: {spiffe: ['spiffe://e/*']}}]
configSources: [{address: 'fs://`+dir+`/rules'}]
`)
	r := startAt(t, dir, "off")
	r.awaitReady(t)
	cfg := &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certified(t, second)}}
	conn, err := grpc.NewClient(r.XDSTLS().String(), grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	first := open(t, conn)
	first.gets(t, 2)
	write(t, dir+"/ca.pem", authority.PEM)
	code, _ := first.ends(t)
	require.Equal(t, codes.Unauthenticated, code)
	code, _ = open(t, conn).ends(t)
	require.Equal(t, codes.Unauthenticated, code, "on the connection that is open")
}

func TestAdmin_RemovedAuthority(t *testing.T) {
	t.Parallel()
	dir, authority, second := t.TempDir(), testutil.NewAuthority(t), testutil.NewAuthority(t)
	write(t, dir+"/rules/all.yaml", entries("prod", "p", 2))
	authority.Loopback(time.Time{}).Files(dir)
	write(t, dir+"/ca.pem", authority.PEM+second.PEM)
	write(t, dir+"/tributary.yaml", `
listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0', adminTLS: {certificate: cert.pem, key: key.pem, clientCAs: ca.pem, clientAuth: require}}
stateDir: 'off'
configSources: [{address: 'fs://`+dir+`/rules'}]
`)
	rig := startAt(t, dir, "127.0.0.1:0")
	client := &http.Client{Transport: &http.Transport{
		MaxConnsPerHost: 1,
		TLSClientConfig: &tls.Config{
			RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12,
			Certificates: []tls.Certificate{certified(t, second)},
		},
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
	eventually(t, func() error {
		if code := post(); code != http.StatusUnauthorized {
			return fmt.Errorf("%d", code)
		}
		return nil
	})
}

// A unix socket's other end is named as its owner likes.
func TestAccess_UnixSocketHasNoAddress(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, dir+"/rules/all.yaml", entries("prod", "p", 2)+entries("secret", "s", 3))
	write(t, dir+"/tributary.yaml", `
listen: {xds: 'unix://`+dir+`/x.sock?mode=0666', admin: '127.0.0.1:0'}
stateDir: 'off'
access: [{who: {cidr: [10.1.0.0/16]}}, {who: {socket: true}, allow: {namespaces: [prod]}}]
configSources: [{address: 'fs://`+dir+`/rules'}]
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
	dir, authority := t.TempDir(), testutil.NewAuthority(t)
	write(t, dir+"/rules/all.yaml", entries("prod", "p", 2))
	authority.Loopback(time.Time{}).Files(dir)
	sign := func(template, issuer *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
		var err error
		template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<60))
		require.NoError(t, err)
		template.NotBefore = time.Now().Add(-time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, signer)
		require.NoError(t, err)
		c, err := x509.ParseCertificate(der)
		require.NoError(t, err)
		return c
	}
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		return k
	}
	parentKey, rootKey := key(), key()
	short := &x509.Certificate{
		Subject: pkix.Name{CommonName: "short"}, NotAfter: time.Now().Add(5 * time.Second), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	short = sign(short, short, parentKey, parentKey)
	id, err := url.Parse("spiffe://e/b")
	require.NoError(t, err)
	leaf := sign(&x509.Certificate{
		URIs: []*url.URL{id}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, short, rootKey, parentKey)
	write(t, dir+"/ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: short.Raw})))
	write(t, dir+"/tributary.yaml", `
listen: {xds: 'off', admin: '127.0.0.1:0', xdsTLS: {address: '127.0.0.1:0', certificate: cert.pem, key: key.pem, clientCAs: ca.pem, `+
		`clientAuth: require}}
stateDir: 'off'
access: [{who: {spiffe: ['spiffe://e/*']}}]
configSources: [{address: 'fs://`+dir+`/rules'}]
`)
	r := startAt(t, dir, "off")
	r.awaitReady(t)
	conn, err := grpc.NewClient(r.XDSTLS().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{
			Certificate: [][]byte{leaf.Raw},
			PrivateKey:  rootKey, Leaf: leaf,
		}},
	})))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	s := open(t, conn)
	s.gets(t, 2)
	code, message := s.ends(t)
	require.Equal(t, codes.Unauthenticated, code)
	require.Contains(t, message, "expired")
}

// One reload adds a source and the rule that hides it, or removes both: no client gets an object that one of the two
// does not allow.
func TestReload_SourcesWithRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/one/all.yaml", entries("prod", "p", 2))
	write(t, dir+"/two/all.yaml", entries("secret", "planted", 20))
	token, line, err := identity.NewToken("web")
	require.NoError(t, err)
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
	rig := start(t, dir)
	rig.awaitReady(t)
	for i := range 40 {
		var subscribers []*subscriber
		for range 3 {
			s := subscribe(t, rig, token, "n")
			s.gets(t, 2)
			subscribers = append(subscribers, s)
		}
		configure(i%2 == 0)
		_, err := rig.reloader.Reload(t.Context(), "the test")
		require.NoError(t, err)
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
