package dubbo

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// bothLevels has a provider at each level. The instance itself answers with its metadata.
func bothLevels() (*zktest.Server, func(*Source), []string) {
	s := zktest.New()
	s.Put(node("a", "10.0.0.1:20880", "", 1), leaf)
	instanceOf(s, "app", "10.0.0.2:20880", "r1")
	return s, func(source *Source) { source.asker = revisionAsker{"r1": {"b"}} }, []string{"a 10.0.0.1:20880*100", "b 10.0.0.2:20880*100"}
}

func (b *rig) awaitDegraded(subject string) {
	b.t.Helper()
	b.await("it is degraded by "+subject, func() bool {
		st := b.status()
		return st.State == sources.Degraded && strings.Contains(st.Message, subject+": ")
	})
}

// TestDeniedLevel_DoesNotBlockOther denies the names of applications, or those of interfaces, from the start.
func TestDeniedLevel_DoesNotBlockOther(t *testing.T) {
	for denied, served := range map[string]int{"/services": 0, "/dubbo": 1} {
		s, asks, both := bothLevels()
		s.Deny(denied)
		b := start(t, s, quickly(), asks)
		b.awaitSync()
		b.awaitAll(both[served])
		b.awaitDegraded(denied)
		s.Allow(denied)
		s.Put(denied+"/other/10.0.0.3:1", leaf) // the next look, at the latest
		b.awaitAll(both...)
	}
}

// TestDeniedLevels_DoNotSync has no readable level, so the source cannot tell an empty registry from a denied one.
func TestDeniedLevels_DoNotSync(t *testing.T) {
	for _, mode := range []string{modeAll, modeInterface, modeInstance} {
		s, asks, _ := bothLevels()
		s.Deny("/services")
		s.Deny("/dubbo")
		settings := quickly()
		settings.RegisterMode = mode
		b := start(t, s, settings, asks)
		b.await("denied", func() bool { return b.status().State == sources.Denied })
		require.False(t, b.table.Synced())
	}
	s := zktest.New() // an empty registry
	s.Deny("/services")
	b := start(t, s, quickly())
	b.await("denied", func() bool { return b.status().State == sources.Denied })
	require.False(t, b.table.Synced())
}

// TestDeniedLevel_KeepsEndpoints has it hidden from us while we are away, and while we are there.
func TestDeniedLevel_KeepsEndpoints(t *testing.T) {
	for _, denied := range []string{"/services", "/dubbo"} {
		s, asks, served := bothLevels()
		b := start(t, s, patiently(), asks)
		b.awaitAll(served...)
		s.Deny(denied)
		b.awaitDegraded(denied)
		require.Equal(t, served, b.show())
		settings := quickly()
		settings.KeepEmpty = time.Hour
		b.restart(settings, func() {})
		b.awaitDegraded(denied)
		b.awaitHeld(1)
		require.Equal(t, served, b.show())
		s.Delete("/services/app/10.0.0.2:20880")
		s.Delete(node("a", "10.0.0.1:20880", "", 1))
		s.Allow(denied)
		b.awaitAll("a", "b")
	}
}
