package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// A timeout limits how long Envoy waits for a response: an upload and a websocket take as long as they take, and an
// endpoint that hangs is ejected, by the timeout of the route or by the deadline of gRPC requests.
func TestTimeoutsOnTributary(t *testing.T) {
	t.Parallel()
	const timeout = 500 * time.Millisecond
	serves := handler(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			n, _ := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprint(w, n)
			return
		}
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	})
	hangs := handler(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	port := fixture.FreePort(t)
	limited := "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: echo, namespace: default}\n" +
		"spec: {hosts: [echo.mesh.internal], http: [{timeout: 500ms, route: [{destination: {host: echo.mesh.internal}}]}]}\n"
	mesh := startMesh(t, "echo.yaml", listing(port, serves)+limited)
	halfHung := func(name string) string {
		return service(name, fmt.Sprintf("  ports: [{number: %d, name: http, protocol: HTTP}]\n  endpoints: [{address: 127.0.0.1, ports: "+
			"{http: %d}}, {address: 127.0.0.1, ports: {http: %d}}]\n", port, serves, hangs)) +
			fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: %s, namespace: default}\n"+
				"spec: {host: %[1]s.mesh.internal, trafficPolicy: {outlierDetection: {consecutiveGatewayErrors: 2, baseEjectionTime: 5m, "+
				"maxEjectionPercent: 50}}}\n", name)
	}
	mesh.write(t, "hung.yaml", halfHung("hung")+strings.ReplaceAll(limited, "echo", "hung")+"---\n"+halfHung("greeter"))
	envoy := fixture.StartEnvoy(t, mesh.XDS)
	envoy.Await(t, answeredWith(t, port, "echo.mesh.internal", http.StatusOK))

	body, to := io.Pipe()
	go func() {
		for range 4 {
			_, _ = io.WriteString(to, "part")
			time.Sleep(timeout / 2)
		}
		_ = to.Close()
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+fixture.Loopback(port), body)
	require.NoError(t, err)
	req.Host = "echo.mesh.internal"
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "200 16", fmt.Sprint(res.StatusCode, " ", string(got)))

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fixture.Loopback(port))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: echo.mesh.internal\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	require.NoError(t, err)
	from := bufio.NewReader(conn)
	status, err := from.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, status, "101")
	for line := ""; line != "\r\n"; {
		line, err = from.ReadString('\n')
		require.NoError(t, err)
	}
	time.Sleep(2 * timeout)
	_, err = io.WriteString(conn, "still here\n")
	require.NoError(t, err)
	line, err := from.ReadString('\n')
	require.NoError(t, err, "the websocket was cut")
	require.Equal(t, "still here\n", line)

	for host, headers := range map[string][]string{"hung": nil, "greeter": {"content-type", "application/grpc", "grpc-timeout", "200m"}} {
		ejected := fmt.Sprintf("outbound|%d||%s.mesh.internal::127.0.0.1:%d::health_flags::/failed_outlier_check", port, host, hangs)
		envoy.Await(t, func() error {
			if res, err := response(t, port, host+".mesh.internal", headers...); err == nil {
				_ = res.Body.Close()
			}
			_, clusters, err := fixture.Get(t.Context(), envoy.URL("/clusters"))
			if err == nil && !strings.Contains(clusters, ejected) {
				err = fmt.Errorf("%s: the endpoint that hangs is not ejected", host)
			}
			return err
		})
	}
	mesh.rejectedNothing(t)
}
