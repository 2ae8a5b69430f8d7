package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// kubeStorm is a cluster with a list of the objects that istiod may never miss.
type kubeStorm struct {
	*kubeWorld
	*storm
	t    *testing.T
	port int // Of the last change.

	// deleted are the objects that the last deed deleted. A snapshot may bring them back before tributary shows the
	// deletion.
	deleted map[fixture.Key]bool

	mu   sync.Mutex
	must map[fixture.Key]bool // Objects that istiod had and no deed has deleted since.
}

// change makes, changes or deletes some objects.
func (s *kubeStorm) change() {
	for range 1 + s.IntN(4) {
		name := fmt.Sprint("o", s.IntN(5))
		key := fixture.Key{Kind: "ServiceEntry", Namespace: "shop", Name: name}
		if s.objects[key] != nil && s.IntN(3) == 0 {
			s.unless(func(k fixture.Key) bool { return k == key })
			s.deleted[key] = true
			s.Delete(s.t, "networking.istio.io/v1", key)
			delete(s.objects, key)
			continue
		}
		s.port++
		s.Apply(s.t, serviceEntry(name, s.port))
		maps.Copy(s.objects, fixture.ParseObjects(s.t, serviceEntry(name, s.port)))
	}
}

// unless takes objects from those that istiod must have.
func (s *kubeStorm) unless(gone func(fixture.Key) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.must, func(key fixture.Key, _ bool) bool { return gone(key) })
}

// Truth implements peer.
func (s *kubeStorm) Truth() error {
	got, err := s.istiod.Configs(s.t.Context())
	if err != nil {
		return err
	}
	return s.objects.Diff(got)
}

// Rest waits until tributary's state is on disk. If it is killed before, it may start without the last change, see
// docs/failing-safely.md.
func (s *kubeStorm) Rest() {
	time.Sleep(2 * time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.objects {
		s.must[key] = s.must[key] || !s.deleted[key]
	}
	clear(s.deleted)
}

// Lost names an object that istiod lacks.
func (s *kubeStorm) Lost(ctx context.Context) error {
	got, err := s.istiod.Configs(ctx)
	if err != nil {
		return errors.New(err.Error()) // Nothing happens to istiod.
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, must := range s.must {
		if must && got[key] == nil {
			return fmt.Errorf("%s is missing", key)
		}
	}
	return nil
}

// Deed implements peer.
func (s *kubeStorm) Deed() string {
	deeds := s.deeds()
	name := draw(s.storm, deeds)
	s.change()
	deeds[name]()
	s.change()
	return name
}

func (s *kubeStorm) deeds() map[string]func() {
	t := s.t
	seconds := func() { s.sometime(4 * time.Second) }
	withoutRights := func() {
		s.Grant(t, "", `[{apiGroups: [security.istio.io], resources: ["*"], verbs: [list, watch]}]`)
	}
	snapshot := func() {
		path, objects := s.Snapshot(t), maps.Clone(s.objects)
		s.change()
		seconds()
		s.unless(func(key fixture.Key) bool { return objects[key] == nil })
		s.Restore(t, path)
		s.objects = objects
	}
	return map[string]func(){
		"the way is shut": func() {
			s.Gate.Shut()
			seconds()
			s.change()
			s.Gate.Open()
		},
		"the API server is killed": func() { s.API.Kill(); seconds(); s.Restart(t) },
		"the API server stands still": func() {
			s.API.Signal(t, syscall.SIGSTOP)
			defer s.API.Signal(t, syscall.SIGCONT)
			seconds()
		},
		"etcd is killed": func() { s.Etcd.Kill(); seconds(); s.Etcd.Restart(t); s.AwaitReady(t) },
		"rights go for a while": func() {
			withoutRights()
			s.API.Kill() // Watches go on without the right.
			s.Restart(t)
			s.change()
			seconds()
			s.Grant(t, "", readIstio)
		},
		"the past is compacted": func() {
			s.Gate.Shut()
			s.change()
			s.Compact(t)
			s.Gate.Open()
		},
		"a snapshot comes back": snapshot,
		"tributary is killed": func() {
			s.tributary.Kill()
			s.change()
			seconds()
			s.tributary.Restart(t)
		},
		"the API server starts twice": func() {
			for range 2 {
				s.API.Crash(t)
				seconds()
			}
			s.AwaitReady(t)
		},
		"a snapshot comes back, and tributary starts during the hold": func() {
			snapshot()
			seconds()
			s.tributary.Crash(t)
		},
		"tributary starts without rights, with an API server that starts": func() {
			withoutRights()
			s.tributary.Kill()
			s.API.Crash(t)
			s.tributary.Restart(t)
			s.AwaitReady(t)
			s.change()
			seconds()
			s.Grant(t, "", readIstio)
		},
		"tributary is killed without an API server": func() {
			s.API.Kill()
			s.tributary.Crash(t)
			seconds()
			s.Restart(t)
		},
	}
}

// TestKubeRandom does random deeds to a cluster, to the connection to it and to tributary. Objects without a deletion
// never go, and after each deed istiod has the objects of the cluster.
func TestKubeRandom(t *testing.T) {
	t.Parallel()
	s := &kubeStorm{
		t: t, storm: newStorm(t, byNight(5, 200)), kubeWorld: startCluster(t, map[string]any{"hold": "10s", "guard": "off"}), port: 1000,
		must: make(map[fixture.Key]bool), deleted: make(map[fixture.Key]bool),
	}
	s.change()
	s.over(t, s, kubeTime, 5*time.Millisecond)
	require.NotEmpty(t, s.must)
}
