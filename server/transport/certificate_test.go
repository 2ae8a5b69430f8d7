package transport

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// loaded returns certificates from a new directory.
func loaded(t *testing.T, p testutil.Pair, files Files) (certificates *Certificates, dir string, log *testutil.Buffer) {
	t.Helper()
	dir, log = t.TempDir(), &testutil.Buffer{}
	files.Certificate, files.Key = p.Files(dir)
	files.MinVersion = tls.VersionTLS12
	certificates, err := Load(t.Context(), "listen.xdsTLS", files, log.Logger())
	require.NoError(t, err)
	return certificates, dir, log
}

// served returns the certificate that a client is shown.
func served(t *testing.T, c *Certificates, a *testutil.Authority) *x509.Certificate {
	t.Helper()
	info, err := shake(t, c, &tls.Config{RootCAs: a.Pool(), MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	return info.PeerCertificates[0]
}

// shake makes a connection as gRPC's server does; it returns the client's error, because a client may learn of a
// refusal only when it reads.
func shake(t *testing.T, certificates *Certificates, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener = Secure(listener)
	defer func() { require.NoError(t, listener.Close()) }()
	creds := Credentials(certificates, slog.New(slog.DiscardHandler))
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }() // the client may have gone
		secured, _, err := creds.ServerHandshake(conn)
		if err == nil {
			_, _ = secured.Write([]byte("x"))
		}
	}()
	defer func() { <-finished }()
	client.NextProtos, client.ServerName = []string{"h2"}, "127.0.0.1"
	conn, err := (&tls.Dialer{Config: client}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = conn.Close() }() // the server may have cut it off
	_, err = conn.Read(make([]byte, 1))
	return conn.(*tls.Conn).ConnectionState(), err
}

func TestCertificate_Replaced(t *testing.T) {
	authority := testutil.NewAuthority(t)
	oldPair, newPair := authority.Loopback(time.Time{}), authority.Loopback(time.Time{})
	for name, exchange := range map[string]func(t *testing.T, c *Certificates, dir string){
		"files are renamed": func(t *testing.T, c *Certificates, dir string) {
			newPair.Files(dir)
			c.refresh(time.Now())
		},
		"files are written in place": func(t *testing.T, c *Certificates, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "cert.pem"), []byte(newPair.Certificate), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "key.pem"), []byte(newPair.Key), 0o600))
			c.refresh(time.Now())
		},
		"the key comes first": func(t *testing.T, certificates *Certificates, dir string) {
			testutil.WriteFile(t, dir, "key.pem", newPair.Key)
			certificates.refresh(time.Now())
			require.Empty(t, certificates.Status().Trouble, "the certificate may be on its way")
			require.Equal(t, oldPair.Leaf.SerialNumber, served(t, certificates, authority).SerialNumber)
			testutil.WriteFile(t, dir, "cert.pem", newPair.Certificate)
			certificates.refresh(time.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, dir, buffer := loaded(t, oldPair, Files{})
			require.Equal(t, oldPair.Leaf.SerialNumber, served(t, c, authority).SerialNumber)
			exchange(t, c, dir)
			require.Equal(t, newPair.Leaf.SerialNumber, served(t, c, authority).SerialNumber)
			require.Contains(t, buffer.String(), "certificate: in force")
			require.NotContains(t, buffer.String(), "ERROR")
		})
	}
}

// Kubernetes exchanges the directory that the names lead through.
func TestMountedCertificate_Replaced(t *testing.T) {
	authority, dir := testutil.NewAuthority(t), t.TempDir()
	oldPair, newPair := authority.Loopback(time.Time{}), authority.Loopback(time.Time{})
	for name, pair := range map[string]testutil.Pair{"..1": oldPair, "..2": newPair} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		pair.Files(filepath.Join(dir, name))
	}
	require.NoError(t, os.Symlink("..1", filepath.Join(dir, "..data")))
	for _, name := range []string{"cert.pem", "key.pem"} {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
	certificates, err := Load(t.Context(), "listen.xdsTLS", Files{
		Certificate: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"),
		MinVersion: tls.VersionTLS12,
	}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, os.Symlink("..2", filepath.Join(dir, "..next")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")))
	certificates.refresh(time.Now())
	require.Equal(t, newPair.Leaf.SerialNumber, served(t, certificates, authority).SerialNumber)
}

func TestMismatchedCertificate_NotUsed(t *testing.T) {
	authority := testutil.NewAuthority(t)
	oldPair, newPair := authority.Loopback(time.Time{}), authority.Loopback(time.Time{})
	for name, bad := range map[string]struct {
		spoil func(t *testing.T, dir string)
		want  string
	}{
		"another key": {
			func(t *testing.T, dir string) { testutil.WriteFile(t, dir, "key.pem", newPair.Key) },
			"private key does not match",
		},
		"no PEM":               {func(t *testing.T, dir string) { testutil.WriteFile(t, dir, "cert.pem", "hello") }, "cert.pem"},
		"the key is gone":      {func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "key.pem"))) }, "key.pem"},
		"no certificate of CA": {func(t *testing.T, dir string) { testutil.WriteFile(t, dir, "ca.pem", "") }, "there is no certificate in it"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, buffer := t.TempDir(), &testutil.Buffer{}
			files := Files{ClientCAs: testutil.WriteFile(t, dir, "ca.pem", authority.PEM), MinVersion: tls.VersionTLS12}
			files.Certificate, files.Key = oldPair.Files(dir)
			certificates, err := Load(t.Context(), "listen.xdsTLS", files, buffer.Logger())
			require.NoError(t, err)
			bad.spoil(t, dir)
			for range 3 {
				certificates.refresh(time.Now())
			}
			require.Equal(t, oldPair.Leaf.SerialNumber, served(t, certificates, authority).SerialNumber)
			require.Contains(t, certificates.Status().Trouble, bad.want)
			require.NotContains(t, buffer.String(), newPair.Key)
			require.Equal(t, 1, bytes.Count([]byte(buffer.String()), []byte("level=ERROR")), "it is logged once: %s", buffer)
			require.NoError(t, promtest.CollectAndCompare(Metrics{certificates}, strings.NewReader(`
# HELP tributary_certificate_trouble Whether the files of a listener's certificate hold something that cannot be put in force, or the `+
				`SPIFFE Workload API that it is from is away (1).
# TYPE tributary_certificate_trouble gauge
tributary_certificate_trouble{listener="listen.xdsTLS"} 1
`), "tributary_certificate_trouble"))

			_, err = Load(t.Context(), "listen.xdsTLS", files, buffer.Logger())
			require.ErrorContains(t, err, bad.want)

			oldPair.Files(dir)
			testutil.WriteFile(t, dir, "ca.pem", authority.PEM)
			certificates.refresh(time.Now())
			require.Empty(t, certificates.Status().Trouble)
			require.Contains(t, buffer.String(), "valid again")
		})
	}
}

func TestExpiringCertificate_Warned(t *testing.T) {
	authority := testutil.NewAuthority(t)
	now := time.Now()
	certificates, _, buffer := loaded(t, authority.Loopback(now.Add(20*24*time.Hour)), Files{})
	certificates.refresh(now)
	require.Empty(t, buffer.String())
	for hour := range 48 {
		certificates.refresh(now.Add(16*24*time.Hour + time.Duration(hour)*time.Hour))
	}
	require.Equal(t, 2, bytes.Count([]byte(buffer.String()), []byte("it expires soon")), "once a day: %s", buffer)
	require.NoError(t, promtest.CollectAndCompare(Metrics{certificates}, strings.NewReader(fmt.Sprintf(`
# HELP tributary_certificate_expiry_timestamp_seconds When the certificate that is in force expires, in seconds since 1970, by listener.
# TYPE tributary_certificate_expiry_timestamp_seconds gauge
tributary_certificate_expiry_timestamp_seconds{listener="listen.xdsTLS"} %d
`, certificates.Status().NotAfter.Unix())), "tributary_certificate_expiry_timestamp_seconds"))

	expired, _, buffer := loaded(t, authority.Loopback(now.Add(-time.Minute)), Files{})
	expired.refresh(now)
	require.Contains(t, buffer.String(), "it has expired")
	require.True(t, expired.Status().Expired)
	require.False(t, expired.Status().Soon, "it has")
	for remaining, soon := range map[time.Duration]bool{
		20 * time.Minute: true, time.Hour: false,
		20 * 24 * time.Hour: false,
	} { // after two hours
		c, _, _ := loaded(t, authority.Loopback(now.Add(remaining)), Files{})
		require.Equal(t, soon, c.Status().Soon, remaining)
	}
}

// While certificates come and go, each handshake has one that is whole.
func TestHandshakes_DuringCertificateReplacement(t *testing.T) {
	authority := testutil.NewAuthority(t)
	pairs := []testutil.Pair{authority.Loopback(time.Time{}), authority.Loopback(time.Time{})}
	certificates, dir, _ := loaded(t, pairs[0], Files{})
	var writer sync.WaitGroup
	stop := make(chan struct{})
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				pairs[i%2].Files(dir)
				certificates.refresh(time.Now())
			}
		}
	})
	for range 50 {
		served(t, certificates, authority)
	}
	close(stop)
	writer.Wait()
}

func TestClientCertificates_Verified(t *testing.T) {
	a, foreign := testutil.NewAuthority(t), testutil.NewAuthority(t)
	client := func(issuer *testutil.Authority, notAfter time.Time) *tls.Config {
		pair := issuer.Sign(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotAfter: notAfter})
		return &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{pair.TLS()}, MinVersion: tls.VersionTLS12}
	}
	multiIdentityClient := client(a, time.Time{})
	twoIdentities := a.Sign(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, URIs: []*url.URL{
		{Scheme: "spiffe", Host: "example.org", Path: "/web"}, {Scheme: "spiffe", Host: "example.org", Path: "/admin"},
	}})
	multiIdentityClient.Certificates = []tls.Certificate{twoIdentities.TLS()}
	withoutCertificate := &tls.Config{RootCAs: a.Pool(), MinVersion: tls.VersionTLS12}
	ca := testutil.WriteFile(t, t.TempDir(), "ca.pem", a.PEM)
	for _, c := range []struct {
		name   string
		auth   tls.ClientAuthType
		client *tls.Config
		good   bool
	}{
		{"required, and shown", tls.RequireAndVerifyClientCert, client(a, time.Time{}), true},
		{"required, and not shown", tls.RequireAndVerifyClientCert, withoutCertificate.Clone(), false},
		{"required, and foreign", tls.RequireAndVerifyClientCert, client(foreign, time.Time{}), false},
		{"required, and expired", tls.RequireAndVerifyClientCert, client(a, time.Now().Add(-time.Hour)), false},
		{"required, and two identities", tls.RequireAndVerifyClientCert, multiIdentityClient, false},
		{"optional, and two identities", tls.VerifyClientCertIfGiven, multiIdentityClient, false},
		{"optional, and not shown", tls.VerifyClientCertIfGiven, withoutCertificate.Clone(), true},
		{"optional, and shown", tls.VerifyClientCertIfGiven, client(a, time.Time{}), true},
		{"optional, and foreign", tls.VerifyClientCertIfGiven, client(foreign, time.Time{}), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			certificates, _, _ := loaded(t, a.Loopback(time.Time{}), Files{ClientCAs: ca, Client: c.auth})
			_, err := shake(t, certificates, c.client)
			if c.good {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
			}
		})
	}
}

func TestRefusedHandshake_Logged(t *testing.T) {
	authority, foreign := testutil.NewAuthority(t), testutil.NewAuthority(t)
	ca := testutil.WriteFile(t, t.TempDir(), "ca.pem", authority.PEM)
	c, _, _ := loaded(t, authority.Loopback(time.Time{}), Files{ClientCAs: ca, Client: tls.RequireAndVerifyClientCert})
	for name, client := range map[string]struct {
		act  func(conn net.Conn)
		want string
	}{
		"a foreign certificate": {func(conn net.Conn) {
			pair := foreign.Sign(&x509.Certificate{})
			over := tls.Client(conn, &tls.Config{
				RootCAs: authority.Pool(), ServerName: "127.0.0.1", NextProtos: []string{"h2"},
				MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair.TLS()},
			})
			_, _ = over.Read(make([]byte, 1))
		}, "certificate signed by unknown authority"},
		"plaintext": {func(conn net.Conn) { _, _ = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) }, "it does not speak TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			buffer := &testutil.Buffer{}
			ours, theirs := net.Pipe()
			finished := make(chan struct{})
			go func() {
				defer close(finished)
				client.act(theirs)
				_ = theirs.Close()
			}()
			_, _, err := Credentials(c, buffer.Logger()).ServerHandshake(secureConn{ours})
			_ = ours.Close()
			<-finished
			require.Error(t, err)
			require.Contains(t, buffer.String(), "client refused")
			require.Contains(t, buffer.String(), client.want)
		})
	}
}

// One gRPC server has listeners with TLS and without.
func TestPlaintextBesideTLS(t *testing.T) {
	c, _, _ := loaded(t, testutil.NewAuthority(t).Loopback(time.Time{}), Files{})
	ours, theirs := net.Pipe()
	defer func() { require.NoError(t, theirs.Close()) }()
	conn, info, err := Credentials(c, slog.New(slog.DiscardHandler)).Clone().ServerHandshake(ours)
	require.NoError(t, err)
	require.Equal(t, ours, conn)
	require.Equal(t, "insecure", info.AuthType())
	require.NoError(t, ours.Close())
}
