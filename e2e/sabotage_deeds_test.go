package e2e

import (
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// deeds are the faults that the saboteur causes.
func (s *saboteur) deeds() map[string]func() {
	return map[string]func(){
		"change a policy of the workload": func() { s.decide("echo") },
		"change a policy of the gateway":  func() { s.decide("front") },
		"change both, and half of a file": func() {
			s.mesh.write(s.t, "mesh.yaml", s.files["mesh.yaml"][:len(s.files["mesh.yaml"])/2])
			s.choose("echo", 1) // policies that go meanwhile may be in the unreadable half, and stay
			s.choose("front", 1)
			s.expect()
			s.write("mesh.yaml", s.files["mesh.yaml"])
		},
		"a policy becomes invalid":         func() { s.invalidate(s.either()) },
		"a policy was never valid":         s.neverValid,
		"tributary dies":                   func() { s.die(func() {}) },
		"tributary dies during a change":   func() { s.die(func() { s.decide(s.either()) }) },
		"tributary's state is damaged":     func() { s.invalidate(s.either()); s.die(s.damage); s.settle() },
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
		"identities are replaced":   func() { renewed(s.t, func() {}, s.envoys...) },
		"SPIRE's authority changes": s.rotateAuthority,
		"the provider dies":         s.killProvider,
	}
}

func (s *saboteur) invalidate(target string) {
	s.t.Helper()
	if s.files[target+".yaml"] == "" { // else it was never valid
		s.choose(target, 1)
		s.expect()
	}
	s.invalid[target] = true
	s.settle()
	s.write(target+".yaml", policyOf(target, nonsense))
	fixture.Await(s.t, func() error {
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
	if s.IntN(2) == 0 {
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
		s.mesh.Crash(s.t)
		s.mesh.AwaitAlive(s.t)
	}
	s.load()
	require.NoError(s.t, os.Rename(elsewhere, s.mesh.dir))
	s.mesh.AwaitReady(s.t)
}

// empty removes all files, which the guard holds, and writes them again.
func (s *saboteur) empty() {
	s.t.Helper()
	dies := s.IntN(2) == 0
	for target, invalid := range s.invalid {
		if invalid && s.lost && dies { // after a restart, tributary does not know that the object of a missing file was invalid
			s.choose(target, 1)
			s.expect()
		}
	}
	for name := range s.files {
		require.NoError(s.t, os.Remove(s.mesh.dir+"/"+name))
	}
	fixture.Await(s.t, func() error {
		if s.mesh.Metric(s.t, "tributary_guard_held_objects", "") == 0 {
			return fmt.Errorf("nothing is held")
		}
		return nil
	})
	s.expect()
	if dies {
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

// rotateAuthority has SPIRE sign with another key, and distrust the former one.
func (s *saboteur) rotateAuthority() {
	s.t.Helper()
	former := identityAt(s.t, s.envoys[0]).authority
	next := s.spire.PrepareAuthority(s.t)
	haveRoots(s.t, 2, s.envoys...)
	s.spire.Authority(s.t, "activate", next)
	renewed(s.t, func() { s.spire.Authority(s.t, "taint", former) }, s.envoys...)
	for _, o := range s.clientIdentities {
		fixture.WaitFor(s.t, 30*time.Second, func() error {
			svid, err := o.GetX509SVID()
			if err == nil && hex.EncodeToString(svid.Certificates[0].AuthorityKeyId) != next {
				err = fmt.Errorf("%s is signed by the former authority", svid.ID)
			}
			return err
		})
	}
	s.expect()
	s.spire.Authority(s.t, "revoke", former)
	haveRoots(s.t, 1, s.envoys...)
}
