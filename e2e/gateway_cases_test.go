package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// TestGatewayAPICases sends the requests of testdata/gateway-api to a real Envoy as gateway. A file has objects and,
// after a line of hyphens, requests with the expected answers: METHOD HOST/PATH [HEADER: VALUE; …] => ANSWER.
func TestGatewayAPICases(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/gateway-api/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	port, dir := fixture.FreePort(t), t.TempDir()
	text := fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge, namespace: shop}\n"+
		"spec: {gatewayClassName: istio, listeners: [{name: http, port: %d, protocol: HTTP}]}\n", port)
	for _, name := range []string{"v1", "v2"} {
		text += fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: shop}\nspec: "+
			"{hosts: [%[1]s.shop.svc.cluster.local], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 8080, name: http, "+
			"protocol: HTTP}], endpoints: [{address: 127.0.0.1, ports: {http: %d}}]}\n", name, echo(t, name))
	}
	write(t, dir, "base.yaml", text)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		objects, _, _ := bytes.Cut(content, []byte("\n----\n"))
		write(t, dir, strings.TrimSuffix(filepath.Base(file), ".txt")+".yaml", string(objects))
	}
	tributary := fixture.StartTributary(t, fixture.Files("cluster", dir).With("derive", map[string]any{}))
	tributary.AwaitReady(t)
	envoy := fixture.StartGateway(t, tributary.XDS, t.TempDir())
	envoy.Await(t, func() error {
		_, err := askEdge(t, port, http.MethodGet, "any.x", "/")
		return err
	})
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		_, requests, _ := strings.Cut(string(content), "\n----\n")
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			for line := range strings.Lines(requests) {
				if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
					continue
				}
				request, want, hasResult := strings.Cut(line, " => ")
				require.True(t, hasResult, line)
				require.Equal(t, want, sendCase(t, port, request), line)
			}
		})
	}
}

// sendCase sends a request of a case, and returns the status or the body, and the headers that cases are about.
func sendCase(t *testing.T, port int, request string) string {
	t.Helper()
	request, list, _ := strings.Cut(strings.TrimSuffix(request, "]"), " [")
	method, url, _ := strings.Cut(request, " ")
	host, path, _ := strings.Cut(url, "/")
	var headers []string
	for header := range strings.SplitSeq(list, "; ") {
		if name, value, hasValue := strings.Cut(header, ": "); hasValue {
			headers = append(headers, name, value)
		}
	}
	got, err := askEdge(t, port, method, host, "/"+path, headers...)
	require.NoError(t, err)
	words := []string{strconv.Itoa(got.status)}
	if got.status == http.StatusOK && got.body != "" {
		words[0] = got.body
	}
	for _, header := range []string{"Location", "Access-Control-Allow-Origin", "Access-Control-Max-Age"} {
		if value := got.header.Get(header); value != "" {
			words = append(words, strings.Replace(value, ":"+strconv.Itoa(port), "", 1))
		}
	}
	return strings.Join(words, " ")
}

// echo is a backend that answers with its name, the path and the header a. The first request of a path below /cut and
// /slow gets no answer.
func echo(t *testing.T, name string) int {
	t.Helper()
	var repeated sync.Map
	return handler(t, func(w http.ResponseWriter, r *http.Request) {
		kind, _, _ := strings.Cut(r.URL.Path[1:], "/")
		if _, retried := repeated.LoadOrStore(r.URL.Path, true); !retried && kind == "cut" {
			panic(http.ErrAbortHandler)
		} else if !retried && kind == "slow" {
			<-r.Context().Done()
			return
		}
		text := name + " " + r.URL.RequestURI()
		if header := r.Header.Get("A"); header != "" {
			text += " a=" + header
		}
		_, _ = io.WriteString(w, text)
	})
}
