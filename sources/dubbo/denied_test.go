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
	register(s, "a 10.0.0.1")
	instanceOf(s, "app", "10.0.0.2:20880", "r1")
	return s, func(source *Source) { source.asker = revisionAsker{"r1": {"b"}} }, []string{"a 10.0.0.1:20880*100", "b 10.0.0.2:20880*100"}
}

func (b *rig) awaitDegraded(subject string) {
	b.T.Helper()
	b.Await("it is degraded by "+subject, func() bool {
		st := b.Status()
		return st.State == sources.Degraded && strings.Contains(st.Message, subject+": ")
	})
}

// TestDeniedLevel_DoesNotBlockOther denies the names of applications, or those of interfaces, from the start.
func TestDeniedLevel_DoesNotBlockOther(t *testing.T) {
	t.Parallel()
	for denied, served := range map[string]int{"/services": 0, "/dubbo": 1} {
		server, asks, both := bothLevels()
		server.Deny(denied)
		rig := start(t, server, quickly(), asks)
		rig.AwaitSync()
		rig.awaitAll(both[served])
		rig.awaitDegraded(denied)
		server.Allow(denied)
		server.Put(denied+"/other/10.0.0.3:1", leaf) // the next look, at the latest
		rig.awaitAll(both...)
	}
}

// TestDeniedLevels_DoNotSync has no readable level, so the source cannot tell an empty registry from a denied one.
func TestDeniedLevels_DoNotSync(t *testing.T) {
	for _, mode := range []string{modeAll, modeInterface, modeInstance} {
		server, asks, _ := bothLevels()
		server.Deny("/services")
		server.Deny("/dubbo")
		settings := quickly()
		settings.RegisterMode = mode
		b := start(t, server, settings, asks)
		b.AwaitState(sources.Denied)
		require.False(t, b.table.Synced())
	}
	s := zktest.New() // an empty registry
	s.Deny("/services")
	b := start(t, s, quickly())
	b.AwaitState(sources.Denied)
	require.False(t, b.table.Synced())
}

// TestDeniedLevel_KeepsEndpoints has it hidden from us while we are away, and while we are there.
func TestDeniedLevel_KeepsEndpoints(t *testing.T) {
	t.Parallel()
	for _, denied := range []string{"/services", "/dubbo"} {
		server, asks, served := bothLevels()
		rig := start(t, server, patiently(), asks)
		rig.awaitAll(served...)
		server.Deny(denied)
		rig.awaitDegraded(denied)
		rig.requireAll(served...)
		settings := quickly()
		settings.KeepEmpty = time.Hour
		rig.restart(settings, func() {})
		rig.awaitDegraded(denied)
		rig.awaitHeld(1)
		rig.requireAll(served...)
		server.Delete("/services/app/10.0.0.2:20880")
		unregister(server, "a 10.0.0.1")
		server.Allow(denied)
		rig.awaitAll("a", "b")
	}
}
