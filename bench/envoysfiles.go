package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tributary/bench/role"
)

// servicePort is that of all services.
const servicePort = "8080"

// writeAll writes the files: a service each, on the one port that all share, and rules of some.
func (r *envoysRunner) writeAll() error {
	for i := range r.services {
		if err := r.writeService(fmt.Sprintf("se-%06d", i), r.addresses(i)); err != nil {
			return err
		}
	}
	for i := range r.rulesOf() {
		if err := r.writeRule(i, "none"); err != nil {
			return err
		}
	}
	if !r.policies {
		return nil
	}
	if err := r.write("gateway", gatewayFile); err != nil {
		return err
	}
	return r.writePolicy("none")
}

const gatewayFile = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: bench}
spec: {servers: [{port: {number: ` + servicePort + `, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: bench}
spec: {hosts: [front.example], gateways: [front], http: [{route: [{destination: {host: se-000000.mesh.internal}}]}]}
`

func (r *envoysRunner) changePolicy() error { return r.writePolicy(r.marker(role.Listeners)) }

func (r *envoysRunner) writePolicy(path string) error {
	return r.write("policy", fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: bench}
spec: {action: DENY, rules: [{to: [{operation: {paths: [/%s]}}]}]}
`, path))
}

func (r *envoysRunner) rulesOf() int { return min(r.rules, r.services) }

// marker is a text of the next change of a type, which no earlier state has.
func (r *envoysRunner) marker(typeURL string) string {
	if typeURL == role.Endpoints {
		return fmt.Sprintf("172.20.%d.%d", r.changes/100, 100+r.changes%100)
	}
	return fmt.Sprintf("change-%06d", r.changes)
}

func (r *envoysRunner) addresses(service int) []string {
	list := make([]string, r.endpoints)
	for i := range list {
		n := service*r.endpoints + i
		list[i] = fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255)
	}
	return list
}

func (r *envoysRunner) changeEndpoint() error {
	i := r.changes % r.services
	addresses := r.addresses(i)
	addresses[len(addresses)-1] = r.marker(role.Endpoints)
	return r.writeService(fmt.Sprintf("se-%06d", i), addresses)
}

func (r *envoysRunner) changeRule() error {
	return r.writeRule(r.changes%r.rulesOf(), r.marker(role.Routes))
}

func (r *envoysRunner) addService() error {
	return r.writeService(r.marker(role.Routes), r.addresses(0))
}

func (r *envoysRunner) writeService(name string, addresses []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: bench}
spec:
  hosts: [%[1]s.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[2]s, name: http, protocol: HTTP}]
  endpoints:
`, name, servicePort)
	for i, a := range addresses {
		fmt.Fprintf(&b, "  - {address: %s, locality: region-1/zone-%d, labels: {version: v%d}}\n", a, i%3, i%2)
	}
	return r.write(name, b.String())
}

func (r *envoysRunner) writeRule(i int, header string) error {
	host := fmt.Sprintf("se-%06d.mesh.internal", i)
	return r.write(fmt.Sprintf("vs-%06d", i), fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: vs-%06d, namespace: bench}
spec:
  hosts: [%[2]s]
  http:
  - match: [{headers: {x-user: {exact: %[3]s}}}]
    timeout: 1s
    route: [{destination: {host: %[2]s}}]
  - route: [{destination: {host: %[2]s}}]
`, i, host, header))
}

// write writes a file in one step, as editors and deployments do.
func (r *envoysRunner) write(name, content string) error {
	temporary := filepath.Join(r.work, "new")
	if err := os.WriteFile(temporary, []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(r.files, name+".yaml"))
}
