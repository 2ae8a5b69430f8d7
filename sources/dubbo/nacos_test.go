package dubbo

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/dubbo/nacos"
	"tributary/sources/dubbo/zookeeper/zktest"
	"tributary/sources/nacos/nacostest"
)

// startInNacos runs a source on a Nacos of the test, which lists its configuration over HTTP.
func startInNacos(t *testing.T, server *nacostest.Server, settings Settings) *rig {
	t.Helper()
	web := httptest.NewServer(server.Lister())
	t.Cleanup(web.Close)
	a, err := nacos.ParseAddress(server.Beside(web, ""))
	require.NoError(t, err)
	return start(t, zktest.New(), settings, func(s *Source) { s.registry = nacos.New(a, nil, 5*time.Millisecond, time.Minute) })
}

// TestNacosMapping_ServesWithoutMetadata has an instance that keeps its metadata itself and cannot be asked, and the
// mappings that Dubbo 3.3.6 for Java and dubbo-go 3.3.2 write.
func TestNacosMapping_ServesWithoutMetadata(t *testing.T) {
	server := nacostest.Start(t)
	server.Config("demo.GreetService", "mapping", "inst-app")
	server.Config("demo.Other", "mapping", "go-inst, inst-app")
	server.Config("com.acme.Greeter", "mapping", "go-inst")
	server.Config("inst-app", "other", "{}")
	server.Put("DEFAULT_GROUP", "inst-app", "1", nacostest.Instance("10.0.0.5", 28990, map[string]string{
		"dubbo.endpoints": `[{"port":28990,"protocol":"dubbo"}]`, "dubbo.metadata.revision": "r1", "dubbo.metadata.storage-type": "local",
	}))
	b := startInNacos(t, server, patiently())
	b.awaitAll("demo-greetservice 10.0.0.5:28990*100", "demo-other 10.0.0.5:28990*100")
	b.awaitMessage(`inst-app revision "r1" by the interfaces mapped to them, without group and version`)
}

// TestNacosConfigurators_Apply has the configurators of an administrator, in the life of his session.
func TestNacosConfigurators_Apply(t *testing.T) {
	server := nacostest.Start(t)
	server.Put("DEFAULT_GROUP", "providers:a.B::", "1", nacostest.Instance("10.0.0.5", 20880,
		map[string]string{"category": "providers", "protocol": "dubbo", "path": "a.B"}))
	b := startInNacos(t, server, patiently())
	b.awaitAll("a-b 10.0.0.5:20880*100")
	metadata := map[string]string{
		"path": "a.B", "weight": "33", "protocol": "override", "dynamic": "false", "category": "configurators",
		"enabled": "true",
	}
	server.Put("DEFAULT_GROUP", "configurators:a.B::", "1", nacostest.Instance("0.0.0.0", 0, metadata))
	b.awaitAll("a-b 10.0.0.5:20880*33")
	server.Stop()
	b.AwaitState(sources.Unreachable)
	server.Delete("DEFAULT_GROUP", "configurators:a.B::", "1")
	server.Restart()
	b.awaitPrefix("1 configurator is not listed and stays")
	b.requireAll("a-b 10.0.0.5:20880*33")
	server.Put("DEFAULT_GROUP", "configurators:a.B::", "1", nacostest.Instance("0.0.0.0", 0, metadata))
	b.AwaitState(sources.Healthy)
	off := nacostest.Instance("10.0.0.5", 20880, map[string]string{
		"path": "a.B", "disabled": "true", "protocol": "override",
		"category": "configurators",
	})
	server.Put("DEFAULT_GROUP", "configurators:a.B::", "2", off)
	b.awaitAll("a-b")
	server.Delete("DEFAULT_GROUP", "configurators:a.B::", "2")
	b.awaitAll("a-b 10.0.0.5:20880*33")
}

// TestNacosGrace_CoversKeepEmpty has services that Nacos forgets a minute after their last instance. The grace must
// cover their keepEmpty of a week.
func TestNacosGrace_CoversKeepEmpty(t *testing.T) {
	source, err := New("nacos://127.0.0.1:8848", Settings{KeepEmpty: 168 * time.Hour})
	require.NoError(t, err)
	require.Equal(t, 168*time.Hour, source.settings.Grace)
}
