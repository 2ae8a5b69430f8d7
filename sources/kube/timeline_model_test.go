package kube

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/presence"
)

var timelineSeeds = flag.Uint64("timeline.seeds", 200, "how many random histories TestTimelineModel goes through")

// modelServer is an API server with some kinds, as lists and watches show it.
type modelServer struct {
	version  uint64
	kinds    []map[string]uint64    // by name, the version
	lost     []map[string]time.Time // the times when restores and missing kinds took objects without a deletion
	absent   []bool
	snapshot *modelServer
}

func (s *modelServer) save() *modelServer {
	saved := &modelServer{version: s.version}
	for _, objects := range s.kinds {
		saved.kinds = append(saved.kinds, maps.Clone(objects))
	}
	return saved
}

// timelineModel has the caches of a run; a test has its clock and server.
type timelineModel struct {
	*modelServer
	t        *testing.T
	now      time.Time
	memories timeline
}

const modelSettle, modelHold = 10 * time.Second, time.Minute

// list has a kind listed. since is the version at the time of the request.
func (m *timelineModel) list(kind int, from, version uint64, objects map[string]uint64) {
	cache := m.memories[kind]
	if m.absent[kind] != cache.absent || m.absent[kind] {
		m.went(kind, cache.setAbsent(m.now, m.absent[kind], modelHold))
	}
	if m.absent[kind] {
		return
	}
	answer := list{from, version, maps.Clone(objects)}
	missing, err := cache.checkList(m.memories, m.now, answer, modelSettle, modelHold)
	if m.went(kind, missing); err == nil {
		for name, version := range objects {
			require.Equal(m.t, version, cache.objects[name].Value, "a listed object is followed")
		}
		require.Len(m.t, cache.objects, len(objects)+len(cache.held()))
	}
}

// went fails if an object goes that was not deleted, before a hold is over.
func (m *timelineModel) went(kind int, missing []string) {
	for _, name := range missing {
		require.False(m.t, m.now.Before(m.lost[kind][name].Add(modelHold)), "kind %d: %s goes during the hold", kind, name)
		delete(m.lost[kind], name)
	}
}

// step does one thing.
func (m *timelineModel) step(random *rand.Rand) {
	kind, name := random.IntN(len(m.kinds)), fmt.Sprint("o", random.IntN(4))
	switch n := random.IntN(20); {
	case n < 6 && !m.absent[kind]: // a change, and its event
		m.version++
		cache, delivered := m.memories[kind], random.IntN(2) == 0 && m.memories[kind].seen == m.version-1
		if delete(m.lost[kind], name); random.IntN(3) > 0 {
			if m.kinds[kind][name] = m.version; delivered {
				cache.objects.Put(name, m.version)
			}
		} else if delete(m.kinds[kind], name); delivered {
			cache.forget(name)
		}
		if delivered {
			cache.seen, cache.confirmedAt = m.version, m.now
		}
	case n < 12:
		m.list(kind, m.memories.seen(), m.version, m.kinds[kind])
	case n == 12: // an answer that was long on its way
		objects, version, from := maps.Clone(m.kinds[kind]), m.version, m.memories.seen()
		m.version++
		another := (kind + 1) % len(m.kinds)
		m.list(another, m.memories.seen(), m.version, m.kinds[another])
		m.list(kind, from, version, objects)
	case n == 13:
		m.snapshot = m.save()
	case n == 14 && m.snapshot != nil && m.memories.seen() == m.version && m.version > m.snapshot.version: // the last version is known
		for i, objects := range m.kinds {
			for name := range objects {
				if m.snapshot.kinds[i][name] == 0 {
					m.lost[i][name] = m.now.Add(modelSettle)
				}
			}
			m.absent[i] = false
		}
		restored := m.snapshot.save()
		m.version, m.kinds = restored.version, restored.kinds
		for range 2 { // it is listed before it is ahead
			for i := range m.kinds {
				m.list(i, m.memories.seen(), m.version, m.kinds[i])
			}
			m.now = m.now.Add(modelSettle)
		}
	case n == 15: // the kind goes, or comes back without its objects
		if m.absent[kind] = !m.absent[kind]; m.absent[kind] {
			for name := range m.kinds[kind] {
				m.lost[kind][name] = m.now
			}
			clear(m.kinds[kind])
			m.version++
		}
		m.list(kind, m.memories.seen(), m.version, m.kinds[kind])
	case n == 16: // another run of ours
		for i, of := range m.memories {
			n := of.note()
			n.Held = map[string]json.RawMessage{}
			for _, name := range of.objects.Held() {
				n.Held[name] = nil
			}
			text, err := json.Marshal(n)
			require.NoError(m.t, err)
			next := note{}
			require.NoError(m.t, json.Unmarshal(text, &next))
			s := &stream{kind: &anyKind, cache: newCache()}
			s.recall(next)
			s.cache.restore(next)
			m.memories[i] = &s.cache
		}
	default:
		m.now = m.now.Add(time.Duration(random.IntN(20)) * time.Second)
	}
}

var anyKind = kind{}

// TestTimelineModel draws random histories of a server with several kinds: changes, restores, kinds that go and return,
// restarts of the source. During holds, listed objects follow and lost objects stay; at the end no object is in doubt.
func TestTimelineModel(t *testing.T) {
	for seed := range *timelineSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // the same cases each time
			m := &timelineModel{modelServer: &modelServer{version: 100}, t: t, now: time.Now()}
			for range 3 {
				m.kinds, m.lost = append(m.kinds, map[string]uint64{}), append(m.lost, map[string]time.Time{})
				m.absent = append(m.absent, false)
				started := newCache()
				m.memories = append(m.memories, &started)
			}
			for range 300 {
				m.step(random)
			}
			for range 2 { // documented: the settle time and the hold
				for i := range m.kinds {
					m.list(i, m.memories.seen(), m.version, m.kinds[i])
				}
				m.now = m.now.Add(modelSettle + modelHold)
			}
			for i := range m.kinds {
				m.list(i, m.memories.seen(), m.version, m.kinds[i])
				want := presence.Set[uint64]{}
				want.Fold(m.kinds[i], false)
				require.Equal(t, want, m.memories[i].objects)
				require.Empty(t, m.memories[i].contentUnknown)
			}
		})
	}
}
