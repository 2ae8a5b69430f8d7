package e2e

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tributary/e2e/fixture"
)

const destinationRules = "networking.istio.io/v1/DestinationRule"

// TestSoakTiers shows that tributaries behind each other agree, object by object, with the files and with each other
// after their connections were refused, delayed, silenced, reset and cut at random while the files changed; that no
// tier lost an unchanged object on the way; and that no process holds more at the end than at the start. SOAK_DURATION
// is its length and SOAK_SEED its seed; `make soak` sets them.
func TestSoakTiers(t *testing.T) {
	t.Parallel()
	duration, seed := 6*time.Second, uint64(2480) // With seed 2480 each connection meets its fault soon.
	if text := os.Getenv("SOAK_DURATION"); text != "" {
		var err error
		duration, err = time.ParseDuration(text)
		require.NoError(t, err, "SOAK_DURATION")
		seed = uint64(time.Now().UnixNano())
	}
	if text := os.Getenv("SOAK_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "SOAK_SEED")
	}
	t.Logf("SOAK_DURATION=%v SOAK_SEED=%d", duration, seed)

	s := newSoak(t, seed)
	s.await(t, 20*time.Second)
	var once []fixture.Footprint
	for _, tier := range s.tiers {
		f, err := tier.Footprint(t.Context())
		require.NoError(t, err)
		once = append(once, f)
	}

	looks := 0
	for tick, end := time.NewTicker(20*time.Millisecond), time.Now().Add(duration); time.Now().Before(end); <-tick.C {
		s.change(t)
		if s.changes%25 == 0 {
			s.requireKept(t)
			looks++
		}
	}
	total := map[fixture.Fault]int{}
	for i, p := range s.proxies {
		connections, faults := p.Count()
		t.Logf("hop %d: %d connections, faults: %v", i+1, connections, faults)
		for fault, n := range faults {
			total[fault] += n
		}
		p.Clean()
	}
	require.NotEmpty(t, total)
	if duration >= 2*time.Minute { // With less, chance may leave one out.
		require.ElementsMatch(t, fixture.Faults(), slices.Collect(maps.Keys(total)), "there was each of the faults")
	}

	clean := time.Now()
	s.await(t, 2*time.Minute) // A client that failed often waits for up to a minute.
	t.Logf("%d changes, %d objects; all agree %v after the last fault; the unchanged objects were there at each of %d looks",
		s.changes, len(s.changing)+len(s.stable), time.Since(clean).Round(time.Millisecond), looks)
	// Later changes arrive as before.
	s.change(t)
	s.await(t, 10*time.Second)
	for i, tier := range s.tiers {
		name := fmt.Sprintf("tier %d", i+1)
		slack := fixture.Footprint{Goroutines: 10, Files: 5, Heap: 8 << 20}
		t.Logf("%s held %v, and holds %v", name, once[i], tier.AwaitFootprint(t, time.Minute, once[i], slack))
	}
}

// soak is a chain of tributaries with faults between them: the first reads files, the second reads the first by delta, and from
// the second one reads by delta and one the state of the world.
type soak struct {
	dir      string
	rand     *rand.Rand
	tiers    []*fixture.Tributary
	proxies  []*fixture.FaultyProxy
	stable   map[string]string // The kinds' type URLs of objects that never change, by name.
	changing []string          // The names of objects that may change.
	changes  int
}

func newSoak(t *testing.T, seed uint64) *soak {
	s := &soak{dir: t.TempDir(), rand: rand.New(rand.NewPCG(seed, 0)), stable: map[string]string{}}
	for i := range 100 {
		name, content := fmt.Sprintf("kept%d", i), serviceEntry
		s.stable["shop/"+name] = serviceEntries
		if i%2 == 0 {
			content = destinationRule
			s.stable["shop/"+name] = destinationRules
		}
		write(t, s.dir, name+".yaml", content(name, 80))
	}
	for range 200 {
		s.create(t)
	}
	// A link that was away for long brings many deletions at once. That a guard would hold them is not the subject.
	tier := func(source fixture.ConfigSource) *fixture.Tributary {
		tr := fixture.StartTributary(t, source.With("guard", "off"))
		s.tiers = append(s.tiers, tr)
		return tr
	}
	behind := func(tr *fixture.Tributary, mode string) *fixture.Tributary {
		p := fixture.StartFaultyProxy(t, tr.XDS, seed+uint64(len(s.proxies)))
		s.proxies = append(s.proxies, p)
		return tier(fixture.Upstream("above", p.Addr).With("mode", mode))
	}
	middle := behind(tier(fixture.Files("rules", s.dir)), "delta")
	behind(middle, "delta")
	behind(middle, "sotw")
	return s
}

// change makes, changes or deletes an object.
func (s *soak) change(t *testing.T) {
	s.changes++
	switch n := s.rand.IntN(4); {
	case n == 0 && len(s.changing) < 400, len(s.changing) < 50:
		s.create(t)
	case n == 1:
		i := s.rand.IntN(len(s.changing))
		require.NoError(t, os.Remove(filepath.Join(s.dir, s.changing[i]+".yaml")))
		s.changing = slices.Delete(s.changing, i, i+1)
	default:
		s.put(t, s.changing[s.rand.IntN(len(s.changing))])
	}
}

// create makes an object, sometimes one that there was before.
func (s *soak) create(t *testing.T) {
	kind := []string{"entry", "rule"}[s.rand.IntN(2)]
	name := fmt.Sprintf("%s%d", kind, s.rand.IntN(1000))
	if !slices.Contains(s.changing, name) {
		s.changing = append(s.changing, name)
	}
	s.put(t, name)
}

// put writes an object with some content, in one step as deployments do.
func (s *soak) put(t *testing.T, name string) {
	content := serviceEntry
	if name[0] == 'r' {
		content = destinationRule
	}
	write(t, s.dir, ".new", content(name, 1+s.rand.IntN(60_000)))
	require.NoError(t, os.Rename(filepath.Join(s.dir, ".new"), filepath.Join(s.dir, name+".yaml")))
}

func destinationRule(name string, connections int) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %s, namespace: shop}
spec: {host: %s.mesh.internal, trafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}}}
`, name, name, connections)
}

// read returns the objects of a tier.
func (s *soak) read(t *testing.T, tier *fixture.Tributary) (byType map[string]map[string]fixture.Served, err error) {
	byType = map[string]map[string]fixture.Served{}
	for _, typeURL := range []string{serviceEntries, destinationRules} {
		if byType[typeURL], err = fixture.ReadServed(t.Context(), tier.XDS, typeURL); err != nil {
			return nil, err
		}
	}
	return byType, nil
}

// requireKept fails the test if a tier lacks an unchanged object.
func (s *soak) requireKept(t *testing.T) {
	t.Helper()
	for i, tier := range s.tiers {
		got, err := s.read(t, tier)
		require.NoError(t, err)
		for name, typeURL := range s.stable {
			require.Contains(t, got[typeURL], name, "tier %d after %d changes", i+1, s.changes)
		}
	}
}

// await waits until all tiers have the objects of the files, in the same versions.
func (s *soak) await(t *testing.T, timeout time.Duration) {
	t.Helper()
	want := fixture.ReadObjects(t, s.dir)
	var first map[string]map[string]fixture.Served
	for i, tier := range s.tiers {
		tier.WaitFor(t, timeout, func() error {
			got, err := s.read(t, tier)
			if err != nil {
				return err
			}
			if i == 0 {
				first = got
				return sameObjects(want, got)
			}
			for typeURL := range first {
				if err := sameServed(first[typeURL], got[typeURL]); err != nil {
					return fmt.Errorf("tier %d: %w", i+1, err)
				}
			}
			return nil
		})
	}
	for i, tier := range s.tiers[1:] {
		awaitState(t, tier, "above", "healthy", false)
		require.Empty(t, tier.Metric(t, "tributary_source_quarantined", `source="above"`), "tier %d", i+2)
	}
}

// sameObjects returns nil if the served objects are those of the files.
func sameObjects(want fixture.Objects, got map[string]map[string]fixture.Served) error {
	var errs []error
	remaining := len(got[serviceEntries]) + len(got[destinationRules])
	for key, object := range want {
		typeURL := serviceEntries
		if key.Kind == "DestinationRule" {
			typeURL = destinationRules
		}
		served, ok := got[typeURL][key.Namespace+"/"+key.Name]
		if !ok {
			errs = append(errs, fmt.Errorf("%s is missing", key))
			continue
		}
		remaining--
		spec := object.Message().ProtoReflect().New().Interface()
		if err := proto.Unmarshal([]byte(served.Body), spec); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if !proto.Equal(object.Message(), spec) {
			errs = append(errs, fmt.Errorf("%s is %v, want %v", key, spec, object.Message()))
		}
	}
	if remaining > 0 {
		errs = append(errs, fmt.Errorf("%d objects are served that no file has", remaining))
	}
	return errors.Join(errs...)
}

// sameServed is nil if both have the same objects, in the same versions, with the same content.
func sameServed(want, got map[string]fixture.Served) error {
	var errs []error
	for name, w := range want {
		if g, ok := got[name]; !ok {
			errs = append(errs, fmt.Errorf("%s is missing", name))
		} else if g != w {
			errs = append(errs, fmt.Errorf("%s has version %s, want %s; the content is the same: %v", name, g.Version, w.Version, g.Body == w.Body))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			errs = append(errs, fmt.Errorf("%s is too much", name))
		}
	}
	return errors.Join(errs...)
}
