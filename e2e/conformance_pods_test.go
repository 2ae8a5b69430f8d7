package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"tributary/e2e/fixture"
)

// conformancePod is a running echo server of the suite, on an address of its own.
type conformancePod struct {
	address string
	labels  map[string]string
	spec    corev1.PodSpec
	process *fixture.Process // Nil as long as a file of a volume is missing.
}

// object is the Pod as an API server has it.
func (p *conformancePod) object(name types.NamespacedName) corev1.Pod {
	pod := corev1.Pod{Spec: p.spec}
	pod.Spec.NodeName = "node"
	pod.Name, pod.Namespace, pod.Labels = name.Name, name.Namespace, p.labels
	pod.Status.PodIP, pod.Status.PodIPs = p.address, []corev1.PodIP{{IP: p.address}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

// deploy adds the Pods of a Deployment.
func (c *conformanceCluster) deploy(deployment *appsv1.Deployment) {
	replicas := int32(1)
	if deployment.Spec.Replicas != nil {
		replicas = *deployment.Spec.Replicas
	}
	for i := range replicas {
		name := types.NamespacedName{Namespace: deployment.Namespace, Name: fmt.Sprintf("%s-pod-%d", deployment.Name, i)}
		template := deployment.Spec.Template
		pod := &conformancePod{address: c.nextAddress(), labels: template.Labels, spec: template.Spec}
		c.mu.Lock()
		if c.pods[name] == nil {
			c.pods[name] = pod
		}
		c.mu.Unlock()
	}
}

// startPods starts the Pods with complete volumes.
func (c *conformanceCluster) startPods() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, pod := range c.pods {
		if pod.process != nil || !strings.Contains(pod.spec.Containers[0].Image, "echo") {
			continue
		}
		c.startPod(name, pod)
	}
}

// startPod runs the echo server with the environment of the Pod once its files exist, on free ports behind the ports of
// the Pod.
func (c *conformanceCluster) startPod(name types.NamespacedName, pod *conformancePod) {
	env := []string{"POD_NAME=" + name.Name, "NAMESPACE=" + name.Namespace}
	for _, variable := range pod.spec.Containers[0].Env {
		if variable.Value == "" {
			continue
		}
		path, complete := c.file(name.Namespace, pod.spec, variable.Value)
		if !complete {
			return
		}
		env = append(env, variable.Name+"="+path)
	}
	ports := map[int][]string{3000: {"HTTP_PORT", "TCP_PORT"}, 3001: {"H2C_PORT"}, 8443: {"HTTPS_PORT", "TLS_PORT"}}
	inMesh := strings.Contains(pod.spec.Containers[0].Image, "echo-advanced")
	if inMesh { // Another program, with ports of its own.
		ports = map[int][]string{8080: {"HTTP_PORT"}, 8443: {"HTTPS_PORT"}}
		calls := fixture.FreePort(c.t)
		forward(c.t, pod.address+":7070", fixture.Loopback(calls))
		settings := append(slices.Clone(env), "GRPC_ECHO_SERVER=1", fmt.Sprintf("HTTP_PORT=%d", calls))
		fixture.Start(c.t, "calls of pod "+name.Name, settings, c.echo)
		env = append(env, fmt.Sprintf("H2C_PORT=%d", fixture.FreePort(c.t)))
	}
	for port, variables := range ports {
		free := fixture.FreePort(c.t)
		for _, variable := range variables {
			env = append(env, fmt.Sprintf("%s=%d", variable, free))
		}
		forward(c.t, fmt.Sprintf("%s:%d", pod.address, port), fixture.Loopback(free))
	}
	pod.process = fixture.Start(c.t, "pod "+name.Name, env, c.echo)
	if inMesh {
		c.startSidecar(c.t, name, pod)
	}
}

// file returns the path on the machine of a file in a volume of a Pod, and whether it exists. Other values stay.
func (c *conformanceCluster) file(namespace string, spec corev1.PodSpec, value string) (path string, complete bool) {
	for _, mount := range spec.Containers[0].VolumeMounts {
		rest, inside := strings.CutPrefix(value, mount.MountPath+"/")
		for _, volume := range spec.Volumes {
			if !inside || volume.Name != mount.Name {
				continue
			}
			var object string
			var items []corev1.KeyToPath
			if volume.Secret != nil {
				object, items = volume.Secret.SecretName, volume.Secret.Items
			} else {
				object, items = volume.ConfigMap.Name, volume.ConfigMap.Items
			}
			for _, item := range items {
				if item.Path == rest {
					rest = item.Key
				}
			}
			path = filepath.Join(c.credentials, namespace, object, rest)
			_, err := os.Stat(path)
			return path, err == nil
		}
	}
	return value, true
}

// forward passes connections on, and their resets.
func forward(t *testing.T, from, to string) {
	t.Helper()
	listener, err := net.Listen("tcp", from)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go relay(client.(*net.TCPConn), server.(*net.TCPConn)) //nolint:errcheck // nothing else
			go relay(server.(*net.TCPConn), client.(*net.TCPConn)) //nolint:errcheck // nothing else
		}
	}()
}

// relay copies a connection to another one until it ends.
func relay(from, to *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.SetLinger(0)
		_ = to.Close()
		return
	}
	_ = to.CloseWrite()
}
