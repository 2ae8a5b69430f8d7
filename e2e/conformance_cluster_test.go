package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"tributary/e2e/fixture"
)

// conformanceCluster is the client of an API server, and stands in for the controllers and nodes of a cluster: it runs
// the echo server of the suite for each Pod of a Deployment, an Envoy for each Gateway, gives Envoys their certificates
// as files, and adds statuses to the objects that it returns, since tributary writes none.
type conformanceCluster struct {
	kubeclient.Client
	t         *testing.T
	config    *rest.Config // Of an API server that has logs of Pods, and lets commands run in them.
	clientset kubernetes.Interface
	tributary *fixture.Tributary

	echo, credentials, extras string // The echo server, the folder of certificates, and a folder of Istio objects.

	changed   atomic.Int64 // When an object last changed, in milliseconds of Unix time.
	mu        sync.Mutex
	addresses int
	gateways  map[types.NamespacedName]*conformanceGateway
	pods      map[types.NamespacedName]*conformancePod
}

// conformanceGateway is the Envoy of a Gateway, on an address of its own.
type conformanceGateway struct {
	address string
	start   sync.Once
	envoy   *fixture.Envoy
}

// gatewayAPIFolder is the folder of the module of Gateway API, which has the CRDs.
func gatewayAPIFolder(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func startConformanceCluster(t *testing.T) *conformanceCluster {
	t.Helper()
	for _, argv := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", "10.244.0.1/16", "dev", "lo"},
		{"route", "add", "default", "dev", "lo"},
	} {
		out, err := exec.CommandContext(t.Context(), "ip", argv...).CombinedOutput() //nolint:gosec // of ours
		require.NoError(t, err, "ip %v: %s", argv, out)
	}
	c := &conformanceCluster{
		t: t, echo: filepath.Join(t.TempDir(), "echo"), credentials: t.TempDir(), extras: t.TempDir(), addresses: 1,
		gateways: make(map[types.NamespacedName]*conformanceGateway),
		pods:     make(map[types.NamespacedName]*conformancePod),
	}
	_, code := fixture.Run(t, "go", "build", "-o", c.echo, "sigs.k8s.io/gateway-api/conformance/echo-basic")
	require.Zero(t, code)
	kube := fixture.NewKube(t)
	files, err := filepath.Glob(filepath.Join(gatewayAPIFolder(t), "config/crd/experimental/*networking*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		kube.Apply(t, string(text))
	}
	kube.ApplyCRDs(t, "istio")
	kube.Grant(t, "", `[{apiGroups: ["*"], resources: ["*"], verbs: [list, watch]}]`)
	kube.Apply(t, "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: istio}\n"+
		"spec: {controllerName: istio.io/gateway-controller}\n")
	c.connect(t, kube)
	options := map[string]any{"allServices": true}
	c.tributary = fixture.StartTributary(t, fixture.Files("extras", c.extras),
		kube.Source("cluster").With("services", map[string]any{}).With("derive", options).With("guard", "off"))
	c.tributary.WaitFor(t, time.Minute, func() error {
		status, _, err := fixture.Get(t.Context(), c.tributary.URL("/-/ready"))
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("not ready: %d", status)
		}
		return err
	})
	return c
}

// connect makes the clients of the API server.
func (c *conformanceCluster) connect(t *testing.T, kube *fixture.Kube) {
	t.Helper()
	target := &url.URL{Scheme: "https", Host: kube.Addr}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = kube.Administrator()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods/{pod}/log", c.serveLog)
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/pods/{pod}/exec", c.serveCommand)
	mux.Handle("/", proxy)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c.config = &rest.Config{Host: server.URL, QPS: -1}
	var err error
	c.clientset, err = kubernetes.NewForConfig(c.config)
	require.NoError(t, err)
	types := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(types))
	require.NoError(t, gatewayv1.Install(types))
	require.NoError(t, apiextensionsv1.AddToScheme(types))
	c.Client, err = kubeclient.New(c.config, kubeclient.Options{Scheme: types})
	require.NoError(t, err)
}

// nextAddress returns an unused address of the cluster.
func (c *conformanceCluster) nextAddress() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addresses++
	return fmt.Sprintf("10.244.%d.%d", c.addresses/250, 1+c.addresses%250)
}

// Get reads an object, and adds its status.
func (c *conformanceCluster) Get(
	ctx context.Context, key kubeclient.ObjectKey, object kubeclient.Object, options ...kubeclient.GetOption,
) error {
	err := c.Client.Get(ctx, key, object, options...)
	if err == nil && time.Now().UnixMilli()-c.changed.Load() > settled.Milliseconds() {
		c.grant(object)
	}
	return err
}

// List reads objects, and adds their statuses. Pods come from the programs that run.
func (c *conformanceCluster) List(
	ctx context.Context, list kubeclient.ObjectList, options ...kubeclient.ListOption,
) error {
	if pods, isPods := list.(*corev1.PodList); isPods {
		var selection kubeclient.ListOptions
		selection.ApplyOptions(options)
		c.mu.Lock()
		defer c.mu.Unlock()
		for name, pod := range c.pods {
			selected := selection.LabelSelector == nil || selection.LabelSelector.Matches(labels.Set(pod.labels))
			if name.Namespace == selection.Namespace && selected {
				pods.Items = append(pods.Items, pod.object(name))
			}
		}
		return nil
	}
	err := c.Client.List(ctx, list, options...)
	if gateways, isGateways := list.(*gatewayv1.GatewayList); isGateways && err == nil {
		for i := range gateways.Items {
			c.grant(&gateways.Items[i])
		}
	}
	return err
}

// Create creates an object, and starts the programs that it describes.
func (c *conformanceCluster) Create(
	ctx context.Context, object kubeclient.Object, options ...kubeclient.CreateOption,
) error {
	err := c.Client.Create(ctx, object, options...)
	if err == nil {
		c.follow(ctx, object)
	}
	return err
}

// Update changes an object, and starts the programs that it describes.
func (c *conformanceCluster) Update(
	ctx context.Context, object kubeclient.Object, options ...kubeclient.UpdateOption,
) error {
	err := c.Client.Update(ctx, object, options...)
	if err == nil {
		c.follow(ctx, object)
	}
	return err
}

// Delete deletes an object, and ends the Envoy of a Gateway.
func (c *conformanceCluster) Delete(
	ctx context.Context, object kubeclient.Object, options ...kubeclient.DeleteOption,
) error {
	err := c.Client.Delete(ctx, object, options...)
	if kindOf(object) == "Gateway" {
		c.mu.Lock()
		gateway := c.gateways[kubeclient.ObjectKeyFromObject(object)]
		delete(c.gateways, kubeclient.ObjectKeyFromObject(object))
		c.mu.Unlock()
		if gateway != nil && gateway.envoy != nil {
			gateway.envoy.Kill()
		}
	}
	return err
}

func kindOf(object kubeclient.Object) string {
	switch object := object.(type) {
	case *unstructured.Unstructured:
		return object.GetKind()
	case *gatewayv1.Gateway:
		return "Gateway"
	case *corev1.Secret:
		return "Secret"
	case *corev1.ConfigMap:
		return "ConfigMap"
	}
	return ""
}

// typed converts an object that was read of YAML.
func typed[T any](t *testing.T, object kubeclient.Object) *T {
	t.Helper()
	if object, isTyped := any(object).(*T); isTyped {
		return object
	}
	converted := new(T)
	content := object.(*unstructured.Unstructured).Object //nolint:errcheck // no others
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(content, converted))
	return converted
}

// settled is the time from a change until objects have a status. In most cases Envoys have the change by then.
const settled = 250 * time.Millisecond

// follow stands in for the controllers of a cluster: it handles a new object.
func (c *conformanceCluster) follow(ctx context.Context, object kubeclient.Object) {
	c.changed.Store(time.Now().UnixMilli())
	switch kindOf(object) {
	case "Secret":
		secret := typed[corev1.Secret](c.t, object)
		content := maps.Clone(secret.Data)
		if content == nil {
			content = make(map[string][]byte)
		}
		for name, text := range secret.StringData {
			content[name] = []byte(text)
		}
		c.writeFiles(object, content)
		c.startPods()
	case "ConfigMap":
		content := make(map[string][]byte)
		for name, text := range typed[corev1.ConfigMap](c.t, object).Data {
			content[name] = []byte(text)
		}
		c.writeFiles(object, content)
		c.startPods()
	case "Deployment":
		c.deploy(typed[appsv1.Deployment](c.t, object))
		c.startPods()
		c.connectServices(ctx)
	case "Service":
		c.connectServices(ctx)
	}
}

// writeFiles writes the files of a Secret or ConfigMap, as a volume has them.
func (c *conformanceCluster) writeFiles(object kubeclient.Object, content map[string][]byte) {
	folder := filepath.Join(c.credentials, object.GetNamespace(), object.GetName())
	require.NoError(c.t, os.MkdirAll(folder, 0o700))
	for name, text := range content {
		path := filepath.Join(folder, name)
		require.NoError(c.t, os.WriteFile(path+".new", text, 0o600))
		require.NoError(c.t, os.Rename(path+".new", path))
	}
}

// connectServices makes the EndpointSlices of all Services that select Pods.
func (c *conformanceCluster) connectServices(ctx context.Context) {
	var services corev1.ServiceList
	require.NoError(c.t, c.Client.List(ctx, &services))
	c.mu.Lock()
	pods := maps.Clone(c.pods)
	c.mu.Unlock()
	for _, service := range services.Items {
		if len(service.Spec.Selector) == 0 {
			continue
		}
		slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
		slice.Name, slice.Namespace = service.Name, service.Namespace
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: service.Name}
		for _, port := range service.Spec.Ports {
			number := port.TargetPort.IntVal
			if number == 0 {
				number = port.Port
			}
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: &port.Name, Port: &number, Protocol: &port.Protocol,
			})
		}
		selector := labels.SelectorFromSet(service.Spec.Selector)
		for name, pod := range pods {
			if name.Namespace == service.Namespace && selector.Matches(labels.Set(pod.labels)) {
				ready := true
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
					Addresses:  []string{pod.address},
					Conditions: discoveryv1.EndpointConditions{Ready: &ready},
				})
			}
		}
		if err := c.Client.Create(ctx, slice); err != nil {
			require.NoError(c.t, c.Client.Update(ctx, slice))
		}
	}
}

// gateway returns the address of a Gateway after its Envoy runs.
func (c *conformanceCluster) gateway(name types.NamespacedName) string {
	c.mu.Lock()
	gateway := c.gateways[name]
	if gateway == nil {
		gateway = &conformanceGateway{}
		c.gateways[name] = gateway
	}
	c.mu.Unlock()
	gateway.start.Do(func() {
		gateway.address = c.nextAddress()
		c.bind(name, "istio.io/gateway-name", "{context: GATEWAY}", gateway.address)
		gateway.envoy = fixture.StartEnvoyWith(c.t, bootstrap(c.t, "envoy", "--server", c.tributary.XDS,
			"--node-id", fmt.Sprintf("router~%s~%s.%s~%[3]s.svc.cluster.local", gateway.address, name.Name, name.Namespace),
			"--label", "istio.io/gateway-name="+name.Name, "--metadata", "CREDENTIALS="+c.credentials))
	})
	return gateway.address
}

// bind gives the listeners of the Envoy with its name as the label an address of its own, since all Envoys have the
// same ports.
func (c *conformanceCluster) bind(name types.NamespacedName, label, listeners, address string) {
	file := fmt.Sprintf("%s.%s.yaml", name.Namespace, name.Name)
	write(c.t, c.extras, file, fmt.Sprintf(`apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: bind-%s, namespace: %s}
spec:
  workloadSelector: {labels: {%s: %s}}
  configPatches:
  - applyTo: LISTENER
    match: %s
    patch: {operation: MERGE, value: {address: {socket_address: {address: %s}}}}
`, name.Name, name.Namespace, label, name.Name, listeners, address))
	c.tributary.WaitFor(c.t, time.Minute, func() error {
		served := c.tributary.Ask(c.t, "get", "envoyfilter", "-n", name.Namespace, "--server", c.tributary.XDS)
		if !strings.Contains(served, "bind-"+name.Name) {
			return fmt.Errorf("the EnvoyFilter of %s is not served", name)
		}
		return nil
	})
}

// serveLog serves the log of a Pod.
func (c *conformanceCluster) serveLog(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	pod := c.pods[types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}]
	c.mu.Unlock()
	if pod == nil || pod.process == nil {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write([]byte(pod.process.Output()))
}
