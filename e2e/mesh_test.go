package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// mesh is a tributary that serves a folder to clients that must not reject anything.
type mesh struct {
	*fixture.Tributary
	dir string
}

// startMesh serves a folder with a first file, and further sources.
func startMesh(t *testing.T, name, content string, sources ...fixture.ConfigSource) *mesh {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, name, content)
	return &mesh{fixture.StartTributary(t, append([]fixture.ConfigSource{fixture.Files("mesh", dir)}, sources...)...), dir}
}

// write makes content that of a file of the folder.
func (m *mesh) write(t *testing.T, name, content string) {
	t.Helper()
	write(t, m.dir, name, content)
}

// rejectedNothing fails the test if a client rejected something.
func (m *mesh) rejectedNothing(t *testing.T) {
	t.Helper()
	require.Zero(t, m.Metric(t, "tributary_xds_nacks_total", ""), "a client rejected something")
}

// requestAs requests a host through Envoy and returns the name of the backend.
func requestAs(t *testing.T, port int, host string, headers ...string) (string, error) {
	return requestAt(t, "http://"+fixture.Loopback(port), host, headers...)
}

// requestAt requests a host at a URL and returns the name of the backend.
func requestAt(t *testing.T, url, host string, headers ...string) (string, error) {
	res, err := responseAt(t, url, host, headers...)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, b)
	}
	return string(b), err
}

func response(t *testing.T, port int, host string, headers ...string) (*http.Response, error) {
	return responseAt(t, "http://"+fixture.Loopback(port), host, headers...)
}

func responseAt(t *testing.T, url, host string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Host = host
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return http.DefaultClient.Do(req)
}

// answeredWith says whether the answer to a request has the status.
func answeredWith(t *testing.T, port int, host string, status int) func() error {
	return func() error {
		res, err := response(t, port, host)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode != status {
			return fmt.Errorf("%s", res.Status)
		}
		return nil
	}
}

// checkClosed returns an error if a program listens on a port of this machine.
func checkClosed(t *testing.T, port int) error {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fixture.Loopback(port))
	if err != nil {
		return nil //nolint:nilerr // the error shows that the port is closed
	}
	_ = conn.Close()
	return fmt.Errorf("something listens on port %d", port)
}
