package consul

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources/consul/consultest"
	"tributary/sources/dubbo/provider"
)

func providerOf(t *testing.T, iface string, e *api.ServiceEntry) provider.Provider {
	t.Helper()
	r := ParseRegistration(iface, e)
	require.NoError(t, r.Err)
	p, ok, err := r.Provider()
	require.NoError(t, err)
	require.True(t, ok)
	return p
}

func inShort(p provider.Provider) string {
	return fmt.Sprintf("%s %s %s:%d %s %d %d", p.Protocol, p.ID, p.Host, p.Port, p.Application, p.Weight(), p.Timestamp)
}

// TestJava reads Consul 1.22.7's answer for a provider of Dubbo for Java 2.7.23.
func TestJava(t *testing.T) {
	text, err := os.ReadFile("testdata/java-2.7.23.json")
	require.NoError(t, err)
	var entries []*api.ServiceEntry
	require.NoError(t, json.Unmarshal(text, &entries))
	require.Len(t, entries, 1)
	require.Equal(t, Serving, StateOf(entries[0]))
	p := providerOf(t, "demo.GreetService", entries[0])
	require.Equal(t, "dubbo g1/demo.GreetService:1.0.0 192.0.2.2:28880 consul-27 30 1795335081005", inShort(p))
	require.Equal(t, "ServiceBean:g1/demo.GreetService:1.0.0", p.Params["service.name"])
}

// entry is an instance on node n1.
func entry(status string, meta map[string]string, tags ...string) *api.ServiceEntry {
	entry := consultest.Instance("com.acme.Demo", "x", "10.0.0.5", 20880)
	entry.Service.Tags, entry.Service.Meta = tags, meta
	entry.Checks = append(entry.Checks, &api.HealthCheck{Node: "n1", ServiceID: "x", CheckID: "service:x", Status: status})
	return entry
}

// TestGo reads a registration of dubbo-go 1.5.6: parameters in its URL are escaped, those in its tags are not.
func TestGo(t *testing.T) {
	p := providerOf(t, "com.acme.Demo", entry("passing", map[string]string{
		"url": "dubbo://10.0.0.7:20000/com.acme.Demo?anyhost=true&app.version=0.0.1&application=BDTService&group=a%26b&interface=" +
			"com.acme.Demo&methods=GetUser%2CGetUsers&release=dubbo-golang-1.5.6&side=provider&timestamp=1795335081&weight=0",
	}, "anyhost=true", "app.version=0.0.1", "application=BDTService", "group=a&b", "interface=com.acme.Demo", "methods=GetUser,GetUsers",
		"release=dubbo-golang-1.5.6", "side=provider",
		"timestamp=1795335081", "weight=0", "dubbo"))
	require.Equal(t, "dubbo a&b/com.acme.Demo 10.0.0.7:20000 BDTService 100 1795335081000", inShort(p))
	require.Equal(t, "GetUser,GetUsers", p.Params["methods"])
}

// TestTagsWithoutURL reads an instance without a URL, as if it was too long for Consul.
func TestTagsWithoutURL(t *testing.T) {
	p := providerOf(t, "com.acme.Demo", entry("passing", nil, "dubbo", "application=a", "version=2.0.0", "weight=7", "token=a=b"))
	require.Equal(t, "dubbo com.acme.Demo:2.0.0 10.0.0.5:20880 a 7 0", inShort(p))
	require.Equal(t, "a=b", p.Params["token"])
	e := entry("passing", nil, "dubbo", "protocol=tri", "path=/x/y")
	e.Service.Address = ""
	p = providerOf(t, "com.acme.Demo", e)
	require.Equal(t, "tri com.acme.Demo 10.0.0.1:20880  100 0", inShort(p))
	require.Equal(t, "x/y", p.Path)
}

func TestRegistration_WithoutProvider(t *testing.T) {
	r := ParseRegistration("com.acme.Demo", entry("passing", map[string]string{"url": "10.0.0.5"}, "dubbo"))
	require.EqualError(t, r.Err, `instance "x" on node "n1": "10.0.0.5": want protocol://host:port/path?parameters`)
	r = ParseRegistration("com.acme.Demo", entry("passing",
		map[string]string{"url": "override://0.0.0.0/com.acme.Demo?category=configurators&weight=9"}, "category=configurators", "weight=9",
		"dubbo"))
	_, ok, err := r.Provider()
	require.NoError(t, err)
	require.False(t, ok)
	_, ok = r.Configurator()
	require.True(t, ok)
}

func TestStateOf(t *testing.T) {
	require.Equal(t, Serving, StateOf(entry("passing", nil)))
	require.Equal(t, Serving, StateOf(entry("warning", nil)))
	e := entry("critical", nil)
	require.Equal(t, Failing, StateOf(e), "of a check that Consul makes itself")
	e.Checks[1].Type = "ttl"
	require.Equal(t, Unverified, StateOf(e), "not heard from since the agent started")
	e.Checks[1].Output = "TTL expired"
	require.Equal(t, Failing, StateOf(e), "it was not kept alive")
	e.Checks[1].Output = ""
	e.Checks = append(e.Checks, &api.HealthCheck{Node: "n1", CheckID: api.NodeMaint, Status: api.HealthCritical})
	require.Equal(t, Failing, StateOf(e), "its node is under maintenance")
}
