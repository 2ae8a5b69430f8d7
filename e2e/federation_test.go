package e2e

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// securedMesh is a service with one endpoint, an ingress listener of a sidecar, which passes requests on to a backend.
// Callers reach it by automatic mutual TLS, with a connection for each request.
const securedMesh = `apiVersion: core/v1alpha1
kind: MeshConfig
metadata: {name: mesh}
spec: {trustDomain: %[1]s}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: echo, namespace: default}
spec:
  hosts: [echo.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: %[2]d, name: http, protocol: HTTP}]
  endpoints:
  - {address: 127.0.0.1, ports: {http: %[3]d}, serviceAccount: echo, labels: {security.istio.io/tlsMode: istio}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: echo, namespace: default}
spec: {host: echo.mesh.internal, trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: echo, namespace: default}
spec:
  workloadSelector: {labels: {app: echo}}
  egress: [{hosts: ["~/*"]}] # or it would listen on the port of the service, too
  ingress:
  - {port: {number: %[3]d, protocol: HTTP, name: http}, captureMode: NONE, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:%[4]d"}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: default}
spec: {mtls: {mode: STRICT}}
`

const policyOfEcho = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: %s, namespace: default}
spec: {selector: {matchLabels: {app: echo}}, %s}
`

// Two trust domains, each with a SPIRE of its own, trust each other. Workloads of the other domain have the identity of
// the same name here if their domain is an alias, and no identity otherwise. Its SPIRE may rotate its key meanwhile.
func TestFederatedTrustDomains(t *testing.T) {
	t.Parallel()
	const oldDomain = "old.example"
	local, remote := fixture.StartSPIRE(t), fixture.StartSPIREOf(t, oldDomain)
	local.Federate(t, remote)
	remote.Federate(t, local)
	programs := [2]string{fixture.EnvoyCopy(t), fixture.EnvoyCopy(t)}
	local.Register(t, echoID, programs[0], time.Hour)
	remote.Register(t, "spiffe://"+oldDomain+"/ns/default/sa/caller", programs[1], time.Hour)
	port, ingress := fixture.FreePort(t), fixture.FreePort(t)
	objects := fmt.Sprintf(securedMesh, fixture.SPIREDomain, port, ingress, backend(t, "one"))
	withAliases := func(aliases string) string {
		return strings.Replace(objects, "{trustDomain: ", "{trustDomainAliases: ["+aliases+"], trustDomain: ", 1)
	}
	mesh := startMesh(t, "mesh.yaml", withAliases(oldDomain))
	echo := fixture.StartEnvoyCopy(t, programs[0], bootstrap(t, "envoy", "--server", mesh.XDS, "--spire", local.Socket, "--label", "app=echo"))
	caller := fixture.StartEnvoyCopy(t, programs[1], bootstrap(t, "envoy", "--server", mesh.XDS, "--spire", remote.Socket))
	becomes := func(workload string, status int) {
		t.Helper()
		caller.Await(t, answeredWith(t, port, echoHost, status))
		for range 20 {
			require.NoError(t, answeredWith(t, port, echoHost, status)(), workload)
		}
	}
	becomes("a workload of the other domain", http.StatusOK)
	_, err := requestAs(t, ingress, echoHost)
	require.Error(t, err, "plaintext is refused")
	for _, step := range []struct {
		policy string
		status int
	}{
		{"action: DENY, rules: [{from: [{source: {principals: [" + fixture.SPIREDomain + "/ns/default/sa/caller]}}]}]", http.StatusForbidden},
		{"action: ALLOW, rules: [{from: [{source: {principals: [" + fixture.SPIREDomain + "/ns/default/sa/caller]}}]}]", http.StatusOK},
		{"action: DENY, rules: [{from: [{source: {principals: [" + oldDomain + "/ns/default/sa/caller]}}]}]", http.StatusForbidden},
		{"action: ALLOW, rules: [{from: [{source: {principals: [" + oldDomain + "/ns/default/sa/caller]}}]}]", http.StatusOK},
	} {
		mesh.write(t, "policy.yaml", fmt.Sprintf(policyOfEcho, "of-echo", step.policy))
		becomes(step.policy, step.status)
	}

	l := loadOn(t, port)
	former := identityAt(t, caller).authority
	next := remote.PrepareAuthority(t)
	local.Refresh(t, remote)
	haveRoots(t, 3, echo, caller)
	remote.Authority(t, "activate", next)
	renewed(t, func() { remote.Authority(t, "taint", former) }, caller)
	require.Equal(t, next, identityAt(t, caller).authority)
	remote.Authority(t, "revoke", former)
	local.Refresh(t, remote)
	haveRoots(t, 2, echo, caller)
	require.Zero(t, l.end(), "requests that failed")
	t.Logf("%d requests answered", l.answered.Load())

	// SPIRE has its roots for all that; the mesh knows no such domain.
	mesh.write(t, "mesh.yaml", withAliases("another.example"))
	becomes("a domain that is no alias", http.StatusServiceUnavailable)
	mesh.write(t, "mesh.yaml", objects)
	becomes("without aliases", http.StatusServiceUnavailable)
	mesh.write(t, "mesh.yaml", withAliases(oldDomain))
	becomes("an alias again", http.StatusOK)
	mesh.rejectedNothing(t)
}

// identity has the secrets that an Envoy got from SPIRE.
type identity struct {
	authority string // ID of the one that signed
	serial    string
	roots     int
}

func identityAt(t *testing.T, e *fixture.Envoy) (id identity) {
	t.Helper()
	var dump struct {
		Configs []struct {
			Secret struct {
				Certificate struct {
					Chain struct {
						Text []byte `json:"inline_bytes"`
					} `json:"certificate_chain"`
				} `json:"tls_certificate"`
				Validation struct {
					Custom struct {
						Config struct {
							Domains []struct {
								Bundle struct {
									Text []byte `json:"inline_bytes"`
								} `json:"trust_bundle"`
							} `json:"trust_domains"`
						} `json:"typed_config"`
					} `json:"custom_validator_config"`
				} `json:"validation_context"`
			} `json:"secret"`
		} `json:"configs"`
	}
	require.NoError(t, fixture.GetJSON(t.Context(), e.URL("/config_dump?resource=dynamic_active_secrets"), &dump))
	for _, c := range dump.Configs {
		if block, _ := pem.Decode(c.Secret.Certificate.Chain.Text); block != nil {
			leaf, err := x509.ParseCertificate(block.Bytes)
			require.NoError(t, err)
			id.authority, id.serial = hex.EncodeToString(leaf.AuthorityKeyId), leaf.SerialNumber.String()
		}
		for _, d := range c.Secret.Validation.Custom.Config.Domains {
			id.roots += bytes.Count(d.Bundle.Text, []byte("BEGIN CERTIFICATE"))
		}
	}
	return id
}

// renewed waits until all Envoys have other certificates than before.
func renewed(t *testing.T, do func(), envoys ...*fixture.Envoy) {
	t.Helper()
	var before []identity
	for _, e := range envoys {
		before = append(before, identityAt(t, e))
	}
	do()
	for i, e := range envoys {
		e.WaitFor(t, 30*time.Second, func() error {
			if id := identityAt(t, e); id.serial == before[i].serial {
				return fmt.Errorf("%s still has %+v", e.Admin, id)
			}
			return nil
		})
	}
}

// haveRoots waits until all Envoys have a number of roots.
func haveRoots(t *testing.T, n int, envoys ...*fixture.Envoy) {
	t.Helper()
	for _, e := range envoys {
		e.WaitFor(t, 30*time.Second, func() error {
			if id := identityAt(t, e); id.roots != n {
				return fmt.Errorf("%s has %d roots, want %d", e.Admin, id.roots, n)
			}
			return nil
		})
	}
}
