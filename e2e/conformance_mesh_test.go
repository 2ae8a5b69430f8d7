package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"
	echoserver "sigs.k8s.io/gateway-api/conformance/echo-basic/grpcechoserver"

	"tributary/e2e/fixture"
)

// startSidecar runs the Envoy of a Pod, which gets the connections that programs of the Pod make.
func (c *conformanceCluster) startSidecar(t *testing.T, name types.NamespacedName, pod *conformancePod) {
	t.Helper()
	c.bind(name, "pod", "{context: SIDECAR_OUTBOUND, listener: {name: virtualOutbound}}", pod.address)
	labels := []string{"pod=" + name.Name}
	for label, value := range pod.labels {
		labels = append(labels, label+"="+value)
	}
	text := bootstrap(t, "envoy", "--server", c.tributary.XDS, "--interception", "REDIRECT",
		"--node-id", fmt.Sprintf("sidecar~%s~%s.%s~%[3]s.svc.cluster.local", pod.address, name.Name, name.Namespace),
		"--label", strings.Join(labels, ","))
	fixture.StartEnvoyWith(t, text)
	intercept(t, pod.address)
}

// intercept leads connections that have an address as their source to the Envoy on this address.
func intercept(t *testing.T, address string) {
	t.Helper()
	source := net.ParseIP(address).To4()
	addRule(t, "pod"+strings.ReplaceAll(address, ".", ""),
		// The source address.
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: net.IPv4len},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: source},
		&expr.Immediate{Register: 1, Data: source},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(15001)},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2})
}

// serveCommand runs the client of the suite's mesh tests in a Pod: client URL --method=M -H K:V --count=N.
func (c *conformanceCluster) serveCommand(w http.ResponseWriter, r *http.Request) {
	name := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	c.mu.Lock()
	pod := c.pods[name]
	c.mu.Unlock()
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil || pod == nil {
		return
	}
	streams := make(chan httpstream.Stream, 3)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	})
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }()
	byType := make(map[string]httpstream.Stream)
	for len(byType) < 3 {
		select {
		case stream := <-streams:
			byType[stream.Headers().Get(corev1.StreamType)] = stream
		case <-time.After(10 * time.Second):
			return
		}
	}
	status := map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"}
	output, err := c.runClient(r.Context(), name, pod, r.URL.Query()["command"])
	if err != nil {
		status["status"], status["message"] = "Failure", err.Error()
	}
	_, _ = io.WriteString(byType[corev1.StreamTypeStdout], output)
	text, _ := json.Marshal(status)
	_, _ = byType[corev1.StreamTypeError].Write(text)
	for _, stream := range byType {
		_ = stream.Close()
	}
	select {
	case <-conn.CloseChan():
	case <-time.After(10 * time.Second):
	}
}

// clientCommand is the command line of the client.
type clientCommand struct {
	target  *url.URL
	method  string
	headers http.Header
	count   int
}

func parseClientCommand(arguments []string) (command clientCommand, err error) {
	command = clientCommand{method: http.MethodGet, headers: make(http.Header), count: 1}
	if command.target, err = url.Parse(arguments[1]); err != nil {
		return command, err
	}
	for i, argument := range arguments {
		flag, value, _ := strings.Cut(argument, "=")
		switch flag {
		case "--method":
			command.method = value
		case "--count":
			command.count, err = strconv.Atoi(value)
		case "-H":
			header, value, _ := strings.Cut(arguments[i+1], ":")
			command.headers.Add(header, value)
		}
	}
	return command, err
}

// runClient sends the requests of a command from the address of a Pod, and returns the answers as the client prints
// them.
func (c *conformanceCluster) runClient(
	ctx context.Context, name types.NamespacedName, pod *conformancePod, arguments []string,
) (string, error) {
	command, err := parseClientCommand(arguments)
	if err != nil {
		return "", err
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(pod.address)}, Timeout: 5 * time.Second}
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return dialer.DialContext(ctx, "tcp4", net.JoinHostPort(c.resolve(ctx, host, name.Namespace), port))
	}
	var output strings.Builder
	for i := range command.count {
		answer := ""
		if command.target.Scheme == "grpc" {
			answer, err = callEcho(ctx, command, dial)
		} else {
			answer, err = requestEcho(ctx, command, dial)
		}
		if err != nil {
			return output.String(), err
		}
		for line := range strings.Lines(answer) {
			fmt.Fprintf(&output, "[%d] %s", i, line)
		}
		output.WriteByte('\n')
	}
	return output.String(), nil
}

// resolve returns the address of a Service, as the DNS of a cluster does; other hosts stay.
func (c *conformanceCluster) resolve(ctx context.Context, host, namespace string) string {
	service, given, named := strings.Cut(host, ".")
	if named {
		namespace, _, _ = strings.Cut(given, ".")
	}
	var object corev1.Service
	key := kubeclient.ObjectKey{Namespace: namespace, Name: service}
	if net.ParseIP(host) == nil && c.Client.Get(ctx, key, &object) == nil {
		return object.Spec.ClusterIP
	}
	return host
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func requestEcho(ctx context.Context, command clientCommand, dial dialFunc) (string, error) {
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	if command.target.Scheme == "https" {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // of a test
	}
	request, err := http.NewRequestWithContext(ctx, command.method, command.target.String(), nil)
	if err != nil {
		return "", err
	}
	request.Header = command.headers.Clone()
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	lines := []string{"StatusCode=" + strconv.Itoa(response.StatusCode)}
	for header, values := range response.Header {
		lines = append(lines, "ResponseHeader="+header+":"+strings.Join(values, ","))
	}
	var echoed struct {
		Host, Pod string
		Headers   http.Header
	}
	if json.NewDecoder(response.Body).Decode(&echoed) == nil {
		lines = append(lines, "Host="+echoed.Host, "Hostname="+echoed.Pod)
		for header, values := range echoed.Headers {
			lines = append(lines, "RequestHeader="+header+":"+strings.Join(values, ","))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n", nil
}

func callEcho(ctx context.Context, command clientCommand, dial dialFunc) (string, error) {
	conn, err := grpc.NewClient("passthrough:///"+command.target.Host,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dial(ctx, "tcp", address)
		}))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	answer, err := echoserver.NewGrpcEchoClient(conn).Echo(ctx, &echoserver.EchoRequest{})
	if err != nil {
		return "", err
	}
	return "StatusCode=200\nHostname=" + answer.GetAssertions().GetContext().GetPod() + "\n", nil
}
