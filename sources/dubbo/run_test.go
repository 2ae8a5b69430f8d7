package dubbo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/zookeeper"
	"tributary/sources/dubbo/zookeeper/zktest"
)

func TestRule10MissedWatch_HealedAndCounted(t *testing.T) {
	t.Parallel()
	server := zktest.New()
	register(server, "a 10.0.0.1")
	settings := patiently()
	settings.Resync = time.Second
	rig := start(t, server, settings)
	rig.awaitAll("a 10.0.0.1:20880*100")
	server.Mute("/dubbo/a/providers")
	register(server, "a 10.0.0.2")
	rig.awaitAll("a 10.0.0.1:20880*100 10.0.0.2:20880*100")
	require.EqualValues(t, 1, rig.source.counters.healed.Value())
}

// TestResumedSession_ReadsAgain has a ZooKeeper that was restored from an older snapshot, with our session in it: no
// watch fires for the restored changes.
func TestResumedSession_ReadsAgain(t *testing.T) {
	server := zktest.New()
	register(server, "a 10.0.0.1")
	rig := start(t, server, patiently())
	rig.awaitAll("a 10.0.0.1:20880*100")
	for n := 2; n < 5; n++ {
		server.Cut()
		rig.AwaitState(sources.Unreachable)
		server.Mute("/dubbo/a/providers")
		server.Mute("/dubbo/b/providers")
		register(server, fmt.Sprint("a 10.0.0.", n))
		server.Reconnect()
		rig.Await("read again", func() bool { return strings.Contains(rig.show()[0], fmt.Sprintf("10.0.0.%d:", n)) })
	}
}

// instanceOf writes an instance with metadata of that revision.
func instanceOf(s *zktest.Server, app, address, revision string) {
	host, port, _ := strings.Cut(address, ":")
	s.Put("/services/"+app+"/"+address, fmt.Sprintf(
		`{"name":%q,"id":%q,"address":%q,"port":%s,"payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance",`+
			`"metadata":{"dubbo.endpoints":"[{\"port\":%s,\"protocol\":\"dubbo\"}]","dubbo.metadata-service.url-params":"{\"port\":\"%s\",`+
			`\"protocol\":\"dubbo\",\"version\":\"1.0.0\"}","dubbo.metadata.revision":%q,"dubbo.metadata.storage-type":"local",`+
			`"timestamp":"1700000000001"}}}`,
		app, address, host, port, port, port, revision))
}

func report(s *zktest.Server, root, app, revision string, services ...string) {
	var entries []string
	for _, name := range services {
		entries = append(entries, fmt.Sprintf(`"%s:dubbo":{"name":%q,"protocol":"dubbo","path":%q,"params":{}}`, name, name, name))
	}
	s.Put(root+"/"+app+"/"+revision, fmt.Sprintf(`{"app":%q,"revision":%q,"services":{%s}}`, app, revision, strings.Join(entries, ",")))
}

// revisionAsker is an asker that knows some revisions.
type revisionAsker map[string][]string

func (a revisionAsker) Ask(_ context.Context, i provider.Instance) (metadata provider.Metadata, how string, err error) {
	for _, name := range a[i.Revision] {
		metadata.Services = append(metadata.Services, provider.Service{Name: name, Protocol: "dubbo", Port: i.Port})
	}
	if len(metadata.Services) == 0 {
		return metadata, "", errors.New("no answer")
	}
	return metadata, "themselves", nil
}

func TestProviders_ServeTheirMetadata(t *testing.T) {
	s := zktest.New()
	instanceOf(s, "app", "10.0.0.1:20880", "r1")
	b := start(t, s, patiently(), func(s *Source) { s.asker = revisionAsker{"r1": {"a", "b"}} })
	b.awaitAll("a 10.0.0.1:20880*100", "b 10.0.0.1:20880*100")
	b.Await("the status names the method", func() bool { return b.Status().Message == "app by themselves" })
}

// TestUnresolvedInstance_StatusNamesReason has instances without readable metadata, until the metadata report has them.
// One of them registers its interface as well.
func TestUnresolvedInstance_StatusNamesReason(t *testing.T) {
	server := zktest.New()
	instanceOf(server, "app", "10.0.0.1:20880", "r1")
	instanceOf(server, "both", "10.0.0.2:20880", "r2")
	server.Put("/dubbo/mapping/a", "app")
	server.Put("/dubbo/mapping/b", "app")
	register(server, "c 10.0.0.2")
	rig := start(t, server, patiently(), func(s *Source) { s.asker = revisionAsker{} })
	rig.awaitAll("a 10.0.0.1:20880*100", "b 10.0.0.1:20880*100", "c 10.0.0.2:20880*100")
	rig.Await("the status names the reason", func() bool {
		m := rig.Status().Message
		return strings.Contains(m, "app revision \"r1\" by the interfaces mapped to them, without group and version, because: "+
			"metadata report: ") && strings.Contains(m, "no answer") && !strings.Contains(m, "\n")
	})
	report(server, "/dubbo/metadata", "app", "r1", "a")
	rig.awaitMessage("app by the metadata report")
}

// TestFallback_StatusNamesReasonOfRevision has three that only count by the interfaces that they register: two for one
// reason, and one for another.
func TestFallback_StatusNamesReasonOfRevision(t *testing.T) {
	server := zktest.New()
	for n, revision := range []string{"r1", "r2", "r3"} {
		address := fmt.Sprintf("10.0.0.%d:20880", n+1)
		instanceOf(server, "app", address, revision)
		register(server, fmt.Sprint("c ", address, " ", n))
	}
	report(server, "/dubbo/metadata", "app", "r3", "c")
	server.Put("/dubbo/metadata/app/r3", "{broken")
	rig := start(t, server, patiently())
	rig.AwaitSync()
	const fallback = " by their interface registrations or the last known state, because: metadata report: "
	rig.Await("each has its reason", func() bool {
		m := rig.Status().Message
		return strings.Contains(m, `app revision "r1", app revision "r2"`+fallback+"not found") &&
			strings.Contains(m, `app revision "r3"`+fallback) && strings.Contains(m, "invalid character")
	})
}

func TestInterfaceNames_DifferByCase(t *testing.T) {
	server := zktest.New()
	register(server, "x.Demo 10.0.0.1")
	rig := start(t, server, patiently())
	rig.awaitAll("x-demo 10.0.0.1:20880*100")
	register(server, "x.demo 10.0.0.2")
	rig.Await("the other interface gets a suffix", func() bool {
		lines := rig.show()
		return len(lines) == 2 && lines[0] == "x-demo 10.0.0.2:20880*100" && strings.HasPrefix(lines[1], "x-demo-") &&
			strings.HasSuffix(lines[1], " 10.0.0.1:20880*100")
	})
}

func TestSettings(t *testing.T) {
	for key, settings := range map[string]Settings{
		"interfaces":   {Interfaces: []string{"["}},
		"delay":        {Delay: time.Minute},
		"registerMode": {RegisterMode: "both"},
		"hold":         {Hold: -1},
	} {
		_, err := New("zookeeper://127.0.0.1", settings)
		require.ErrorContains(t, err, key+": ")
	}
	for _, address := range []string{"zookeeper://", "http://x", "zookeeper://h:port", "zookeeper://h?timeout=x", "zookeeper://h?session=1"} {
		_, err := New(address, Settings{})
		require.ErrorContains(t, err, "address: ")
	}
	source, err := New("zookeeper://u:p@[::1]:2182/root?backup=h2,h3:2183&group=g&timeout=3000&session=6000&check=false", Settings{})
	require.NoError(t, err)
	require.Equal(t, "zookeeper /root/g/", source.place)
}

func TestRule12GroupMovesEveryPath(t *testing.T) {
	s := zktest.New()
	s.Put("/g/a/providers/"+url.QueryEscape("dubbo://10.0.0.1:20880/a?application=x&interface=a"), leaf)
	s.Put("/g/mapping/b", "app")
	instanceOf(s, "app", "10.0.0.2:20880", "r1")
	rig := start(t, s, patiently(), func(source *Source) { source.registry = inGroup(s, "g") })
	rig.awaitAll("a 10.0.0.1:20880*100")
	s.Put("/g/app/10.0.0.3:20880", `{"name":"app","address":"10.0.0.3","port":20880,"payload":{"metadata":{"dubbo.metadata.revision":"r1"}}}`)
	report(s, "/g/metadata", "app", "r1", "b")
	s.Put("/g/metadata/app/r1", `{"app":"app","revision":"r1","services":{"b:dubbo":{"name":"b","protocol":"dubbo","port":20880}}}`)
	rig.awaitAll("a 10.0.0.1:20880*100", "b 10.0.0.3:20880*100")
}

func inGroup(s *zktest.Server, group string) backend.Registry {
	return zookeeper.WithDial(s.Dial, zookeeper.Address{Group: group}, time.Minute)
}

// TestHold_LastsThroughRepeatedOutage loses the registry again before the held providers could register again. The fuzz
// found that.
func TestHold_LastsThroughRepeatedOutage(t *testing.T) {
	server := zktest.New()
	source := sourceOf(t, server, Settings{Hold: time.Minute})
	run := newRun(source, nil)
	u, err := provider.ParseURL("dubbo://10.0.0.5:20880/com.acme.Demo?application=demo&interface=com.acme.Demo")
	require.NoError(t, err)
	endpoints := func(now time.Time) int {
		run.gather(now)
		run.gather(now) // deferred work
		return run.endpoints()
	}
	run.Connection(backend.Connection{Up: true, Fresh: true})
	run.Parts(partsOf("com.acme.Demo"), nil)
	run.Applications(nil, nil)
	run.Registered(partsOf("com.acme.Demo")[1], nil, nil)
	run.Registered(partsOf("com.acme.Demo")[0], []backend.Registration{{URL: u}}, nil)
	now := time.Now()
	require.Equal(t, 1, endpoints(now))
	run.Connection(backend.Connection{Message: "away"})
	run.Connection(backend.Connection{Up: true, Fresh: true})
	run.Registered(partsOf("com.acme.Demo")[0], nil, nil)
	require.Equal(t, 1, endpoints(now), "it is not listed, and in doubt")
	run.Connection(backend.Connection{Message: "away again"})
	require.Equal(t, 1, endpoints(now.Add(time.Hour)))
	run.Connection(backend.Connection{Up: true, Fresh: true})
	require.Equal(t, 1, endpoints(now.Add(30*time.Second)))
	require.Zero(t, endpoints(now.Add(2*time.Minute)))
}

// TestInterfaceOverLimit_DoesNotBlockOthers has one that lists more than is taken.
func TestInterfaceOverLimit_DoesNotBlockOthers(t *testing.T) {
	server := zktest.New()
	for n := range 100_001 {
		server.Put(fmt.Sprintf("/dubbo/flood/providers/%d", n), leaf)
	}
	register(server, "a 10.0.0.1")
	rig := start(t, server, patiently())
	rig.AwaitSync()
	rig.awaitAll("a 10.0.0.1:20880*100")
	rig.AwaitState(sources.Degraded)
	require.Contains(t, rig.Status().Message, `"/dubbo/flood/providers": its 100001 children are over the limit of 100000`)
}

// TestSynced_WaitsForNewApplications completes the list of applications after the first publication.
func TestSynced_WaitsForNewApplications(t *testing.T) {
	run := emptyRun(t)
	run.Connection(backend.Connection{Up: true, Fresh: true})
	run.Parts(nil, nil)
	run.Applications(nil, &backend.Incomplete{})
	now := time.Now()
	require.False(t, run.gather(now).Synced, "the list is incomplete")
	run.Applications([]string{"app"}, nil)
	require.False(t, run.gather(now).Synced, "the application is unread")
	run.Instances("app", nil, nil)
	require.True(t, run.gather(now).Synced)
}
