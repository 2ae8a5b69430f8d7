package e2e

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// deeds are what the saboteur does.
func (s *saboteur) deeds() map[string]func() {
	return map[string]func(){
		"change a policy of the workload": func() { s.decide("echo") },
		"change a policy of the gateway":  func() { s.decide("front") },
		"change both, and half of a file": func() {
			s.mesh.write(s.t, "mesh.yaml", s.files["mesh.yaml"][:len(s.files["mesh.yaml"])/2])
			s.decide("echo")
			s.decide("front")
			s.expect()
			s.write("mesh.yaml", s.files["mesh.yaml"])
		},
		"a policy becomes invalid":         func() { s.invalidate(s.either()) },
		"a policy was never valid":         s.neverValid,
		"tributary dies":                   func() { s.die(func() {}) },
		"tributary dies during a change":   func() { s.die(func() { s.decide(s.either()) }) },
		"tributary's state is damaged":     func() { s.invalidate(s.either()); s.die(s.damage) },
		"the files are elsewhere":          func() { s.away(false) },
		"the files are elsewhere, restart": func() { s.away(true) },
		"all files are removed":            s.empty,
		"the agent dies": func() {
			s.spire.Agent.Kill()
			s.decide("echo")
			s.expect()
			s.spire.Agent.Restart(s.t)
			s.spire.AwaitAgent(s.t)
		},
		"identities are replaced":   func() { s.renewed(func(e identity) bool { return true }) },
		"SPIRE's authority changes": s.rotateAuthority,
		"the provider dies":         s.killProvider,
	}
}

func (s *saboteur) invalidate(target string) {
	s.t.Helper()
	for s.files[target+".yaml"] == "" { // else it was never valid
		s.decide(target)
		s.expect()
	}
	s.invalid[target] = true
	s.settle()
	s.write(target+".yaml", policyOf(target, nonsense))
	fixture.WaitFor(s.t, 10*time.Second, func() error {
		if s.mesh.Metric(s.t, "tributary_source_quarantined", "") == 0 {
			return fmt.Errorf("nothing is quarantined")
		}
		return nil
	})
}

func (s *saboteur) neverValid() {
	s.t.Helper()
	s.never = true
	s.settle()
	s.write("never.yaml", policy("never", "{"+nonsense+"}"))
	s.expect()
	s.load()
	if s.rnd.IntN(2) == 0 {
		s.die(func() {})
		s.expect()
	}
	s.never = false
	s.settle()
	s.write("never.yaml", "")
}

func (s *saboteur) die(meanwhile func()) {
	s.t.Helper()
	s.mesh.Kill()
	meanwhile()
	s.load()
	s.restart()
}

// away moves the files away and back.
func (s *saboteur) away(restart bool) {
	s.t.Helper()
	elsewhere := s.mesh.dir + ".away"
	require.NoError(s.t, os.Rename(s.mesh.dir, elsewhere))
	s.load()
	if restart {
		s.mesh.Kill()
		if s.rnd.IntN(2) == 0 {
			s.damage()
		}
		s.mesh.Restart(s.t)
		s.mesh.AwaitAlive(s.t)
	}
	s.load()
	require.NoError(s.t, os.Rename(elsewhere, s.mesh.dir))
	s.mesh.AwaitReady(s.t)
}

// empty removes all files, which the guard holds, and writes them again.
func (s *saboteur) empty() {
	s.t.Helper()
	for name := range s.files {
		require.NoError(s.t, os.Remove(s.mesh.dir+"/"+name))
	}
	fixture.WaitFor(s.t, 10*time.Second, func() error {
		if s.mesh.Metric(s.t, "tributary_guard_held_objects", "") == 0 {
			return fmt.Errorf("nothing is held")
		}
		return nil
	})
	s.expect()
	if s.rnd.IntN(2) == 0 {
		s.die(func() {})
		s.expect()
	}
	for name, text := range s.files {
		s.mesh.write(s.t, name, text)
	}
}

func (s *saboteur) killProvider() {
	s.t.Helper()
	s.changeProvider()
	s.stop()
	s.expect()
	s.load()
	s.changeProvider()
	s.stop = s.startProvider()
}

// identity is what an Envoy has of SPIRE.
type identity struct {
	authority string // ID of the one that signed
	serial    string
	roots     int
}

func (s *saboteur) identity(e *fixture.Envoy) (id identity) {
	s.t.Helper()
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
	require.NoError(s.t, fixture.GetJSON(s.t.Context(), e.URL("/config_dump?resource=dynamic_active_secrets"), &dump))
	for _, c := range dump.Configs {
		if block, _ := pem.Decode(c.Secret.Certificate.Chain.Text); block != nil {
			leaf, err := x509.ParseCertificate(block.Bytes)
			require.NoError(s.t, err)
			id.authority, id.serial = hex.EncodeToString(leaf.AuthorityKeyId), leaf.SerialNumber.String()
		}
		for _, d := range c.Secret.Validation.Custom.Config.Domains {
			id.roots += bytes.Count(d.Bundle.Text, []byte("BEGIN CERTIFICATE"))
		}
	}
	return id
}

// renewed waits until all Envoys have other certificates, such as are wanted.
func (s *saboteur) renewed(wanted func(identity) bool) {
	s.t.Helper()
	for _, e := range s.envoys {
		before := s.identity(e)
		e.WaitFor(s.t, 30*time.Second, func() error {
			if id := s.identity(e); id.serial == before.serial || !wanted(id) {
				return fmt.Errorf("%s still has %+v", e.Admin, id)
			}
			return nil
		})
	}
}

// haveRoots waits until all Envoys have a number of roots.
func (s *saboteur) haveRoots(n int) {
	s.t.Helper()
	for _, e := range s.envoys {
		e.WaitFor(s.t, 30*time.Second, func() error {
			if id := s.identity(e); id.roots != n {
				return fmt.Errorf("%s has %d roots, want %d", e.Admin, id.roots, n)
			}
			return nil
		})
	}
}

// rotateAuthority has SPIRE sign with another key, and distrust the former one.
func (s *saboteur) rotateAuthority() {
	s.t.Helper()
	former := s.identity(s.envoys[0]).authority
	next := s.spire.PrepareAuthority(s.t)
	s.haveRoots(2)
	s.spire.Authority(s.t, "activate", next)
	s.spire.Authority(s.t, "taint", former)
	s.renewed(func(id identity) bool { return id.authority == next })
	s.expect()
	s.spire.Authority(s.t, "revoke", former)
	s.haveRoots(1)
}
