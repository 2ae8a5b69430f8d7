package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// kubeSabotage is a cluster with a list of the objects that istiod may never miss.
type kubeSabotage struct {
	*kubeWorld

	random *rand.Rand
	port   int // Of the last change.

	// deleted are the objects that the last deed deleted. A snapshot may bring them back before tributary shows the
	// deletion.
	deleted map[fixture.Key]bool

	mu   sync.Mutex
	must map[fixture.Key]bool // Objects that istiod had and no deed has deleted since.
}

// change makes, changes or deletes some objects.
func (s *kubeSabotage) change(t *testing.T) {
	t.Helper()
	for range 1 + s.random.IntN(4) {
		name := fmt.Sprint("o", s.random.IntN(5))
		key := fixture.Key{Kind: "ServiceEntry", Namespace: "shop", Name: name}
		if s.objects[key] != nil && s.random.IntN(3) == 0 {
			s.mu.Lock()
			delete(s.must, key)
			s.mu.Unlock()
			s.deleted[key] = true
			s.Delete(t, "networking.istio.io/v1", key)
			delete(s.objects, key)
			continue
		}
		s.port++
		s.Apply(t, serviceEntry(name, s.port))
		maps.Copy(s.objects, fixture.ParseObjects(t, serviceEntry(name, s.port)))
	}
}

// rest waits until istiod has the objects of the cluster, and tributary's state is on disk.
func (s *kubeSabotage) rest(t *testing.T, step string) {
	t.Helper()
	s.awaitObjects(t, step, "")
	// A tributary that is killed before its state is on disk may start without the last change, see docs/failing-safely.md.
	time.Sleep(2 * time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.objects {
		s.must[key] = s.must[key] || !s.deleted[key]
	}
	clear(s.deleted)
}

// wrong names an object that istiod lacks.
func (s *kubeSabotage) wrong(got fixture.Objects) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, must := range s.must {
		if must && got[key] == nil {
			return fmt.Errorf("%s is missing", key)
		}
	}
	return nil
}

// TestKubeRandom does random deeds to a cluster, to the connection to it and to tributary. Objects without a deletion
// never go, and after each deed istiod has the objects of the cluster.
func TestKubeRandom(t *testing.T) {
	t.Parallel()
	number, seed := 5, uint64(1)
	if os.Getenv("E2E_NIGHTLY") != "" {
		number, seed = 200, rand.Uint64() //nolint:gosec // no secret
	}
	if text := os.Getenv("E2E_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("seed %d: E2E_SEED repeats it", seed)
	s := &kubeSabotage{
		kubeWorld: startCluster(t, map[string]any{"hold": "10s", "guard": "off"}), port: 1000, must: make(map[fixture.Key]bool),
		deleted: make(map[fixture.Key]bool),
		random:  rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // no secret
	}
	seconds := func() { time.Sleep(time.Duration(s.random.IntN(4000)) * time.Millisecond) } // Any moment will do.
	deeds := []struct {
		name string
		do   func()
	}{
		{"the way is shut", func() {
			s.Gate.Shut()
			seconds()
			s.change(t)
			s.Gate.Open()
		}},
		{"the API server is killed", func() {
			s.API.Kill()
			seconds()
			s.Restart(t)
		}},
		{"the API server stands still", func() {
			s.API.Signal(t, syscall.SIGSTOP)
			seconds()
			s.API.Signal(t, syscall.SIGCONT)
		}},
		{"etcd is killed", func() {
			s.Etcd.Kill()
			seconds()
			s.Etcd.Restart(t)
			s.AwaitReady(t)
		}},
		{"rights go for a while", func() {
			s.Grant(t, "", `[{apiGroups: [security.istio.io], resources: ["*"], verbs: [list, watch]}]`)
			s.API.Kill() // Watches go on without the right.
			s.Restart(t)
			s.change(t)
			seconds()
			s.Grant(t, "", readIstio)
		}},
		{"the past is compacted", func() {
			s.Gate.Shut()
			s.change(t)
			s.Compact(t)
			s.Gate.Open()
		}},
		{"a snapshot comes back", func() {
			path, objects := s.Snapshot(t), maps.Clone(s.objects)
			s.change(t)
			seconds()
			s.mu.Lock()
			maps.DeleteFunc(s.must, func(key fixture.Key, _ bool) bool { return objects[key] == nil })
			s.mu.Unlock()
			s.Restore(t, path)
			s.objects = objects
		}},
		{"tributary is killed", func() {
			s.tributary.Kill()
			s.change(t)
			seconds()
			s.tributary.Restart(t)
		}},
		{"the API server starts twice", func() {
			for range 2 {
				s.API.Kill()
				s.API.Restart(t)
				seconds()
			}
			s.AwaitReady(t)
		}},
		{"a snapshot comes back, and tributary starts during the hold", func() {
			path, objects := s.Snapshot(t), maps.Clone(s.objects)
			s.change(t)
			seconds()
			s.mu.Lock()
			maps.DeleteFunc(s.must, func(key fixture.Key, _ bool) bool { return objects[key] == nil })
			s.mu.Unlock()
			s.Restore(t, path)
			s.objects = objects
			seconds()
			s.tributary.Kill()
			s.tributary.Restart(t)
		}},
		{"tributary starts without rights, with an API server that starts", func() {
			s.Grant(t, "", `[{apiGroups: [security.istio.io], resources: ["*"], verbs: [list, watch]}]`)
			s.tributary.Kill()
			s.API.Kill()
			s.API.Restart(t)
			s.tributary.Restart(t)
			s.AwaitReady(t)
			s.change(t)
			seconds()
			s.Grant(t, "", readIstio)
		}},
		{"tributary is killed without an API server", func() {
			s.API.Kill()
			s.tributary.Kill()
			s.tributary.Restart(t)
			seconds()
			s.Restart(t)
		}},
	}
	s.change(t)
	s.rest(t, "at first")
	watch := look(t, s.istiod, s.wrong)
	for i := 0; i < number && !t.Failed(); {
		for _, n := range s.random.Perm(len(deeds))[:min(len(deeds), number-i)] {
			s.change(t)
			deeds[n].do()
			s.change(t)
			s.rest(t, deeds[n].name)
			i++
		}
	}
	require.NotEmpty(t, s.must)
	t.Logf("istiod had everything at %d looks", watch.stop(t))
}
