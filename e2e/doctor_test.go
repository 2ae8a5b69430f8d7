package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
)

// looked runs `tributary doctor`, and returns its findings, as "severity check: message", and their fixes.
func looked(t *testing.T, conf string, args ...string) (findings, fixes string, code int) {
	t.Helper()
	file := testutil.WriteFile(t, t.TempDir(), "tributary.yaml", conf)
	out, code := fixture.Run(t, append([]string{fixture.TributaryBinary(t), "doctor", "-c", file, "-o", "json"}, args...)...)
	var entries []struct{ Check, Severity, Message, Fix string }
	require.NoError(t, json.Unmarshal([]byte(out), &entries), out)
	for _, f := range entries {
		findings += f.Severity + " " + f.Check + ": " + f.Message + "\n"
		fixes += f.Fix + "\n"
	}
	return findings, fixes, code
}

// TestInitAndDoctorOfRegistries shows that `init` writes a configuration that reads all real registries of the host,
// and that `doctor` names the fault of each registry with a fault.
func TestInitAndDoctorOfRegistries(t *testing.T) {
	t.Parallel()
	const host = "127.0.0.66" // an address without other programs on the usual ports
	nacos := fixture.StartNacos(t, "3.1.0")
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	zookeeper := fixture.StartZooKeeper(t)
	eureka := fixture.NewEureka(t, fixture.FreePort(t))
	eureka.AwaitServing(t)
	for port, target := range map[string]string{
		"8500": consul.HTTP, "2181": zookeeper.Addr, "8848": fixture.Loopback(nacos.Port), "9848": fixture.Loopback(nacos.Port + 1000),
		"8761": fixture.Loopback(eureka.Port),
	} {
		fixture.StartGateAt(t, net.JoinHostPort(host, port), target)
	}
	consul.Register(t, &api.AgentServiceRegistration{ID: "web-1", Name: "web", Address: "10.0.0.1", Port: 80}, "passing")
	fixture.NacosInstance{Service: "stock", IP: "10.0.0.3", Port: 9000}.Beat(t, nacos)

	dir := t.TempDir()
	file := filepath.Join(dir, "tributary.yaml")
	write(t, dir, "rules.yaml", serviceEntry("a", 80))
	out, code := fixture.Run(t, fixture.TributaryBinary(t), "init", file, "--host", host)
	require.Zero(t, code, out)
	require.Contains(t, out, "with 1 place of files and 4 registries")
	nacos.WaitFor(t, time.Minute, func() error { // it lists new registrations a little later
		out, code = fixture.Run(t, "sh", "-c", fixture.TributaryBinary(t)+" validate --connect "+file+" 2>&1")
		if code != 0 || !strings.Contains(line(out, "source nacos"), "1 object with 1 endpoint") {
			return fmt.Errorf("%d: %s", code, out)
		}
		return nil
	})
	assert.Contains(t, line(out, "source consul"), "2 objects with 2 endpoints would be served", "itself is a service, too")
	assert.Contains(t, line(out, "source zookeeper"), "no Dubbo provider")
	assert.Contains(t, line(out, "source eureka"), "there is no instance")

	locked := fixture.StartConsul(t, fixture.ConsulOptions{ManagementToken: "11111111-2222-3333-4444-555555555555"})
	token, _, err := locked.API().ACL().TokenCreate(&api.ACLToken{Description: "may nothing"}, nil)
	require.NoError(t, err)
	write(t, dir, "consul.token", token.SecretID)
	findings, fixes, code := looked(t, "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nconfigSources:\n"+
		"- {name: locked, address: 'consul://"+locked.HTTP+"', tokenFile: '"+filepath.Join(dir, "consul.token")+"'}\n"+
		"- {name: nobody, address: 'consul://"+fixture.Loopback(fixture.FreePort(t))+"'}\n"+
		"- {name: no-zookeeper, address: 'zookeeper://"+consul.HTTP+"'}\n"+
		"- {name: no-nacos, address: 'nacos://"+zookeeper.Addr+"?kind=services'}\n"+
		"- {name: no-eureka, address: 'eureka://"+fixture.Loopback(eureka.Port)+"/nowhere'}\n")
	require.Equal(t, 3, code)
	assert.Contains(t, findings, "error rights: ")
	assert.Contains(t, line(findings, "error rights: "), "source locked")
	assert.Contains(t, fixes, "give the token or user of the source the rights")
	for _, source := range []string{"nobody", "no-zookeeper", "no-nacos", "no-eureka"} {
		assert.Contains(t, findings, "source "+source+" (")
		assert.Contains(t, line(findings, "source "+source), "error sources: ")
	}
	assert.Contains(t, fixes, "see that the address is right")
	assert.NotContains(t, findings, token.SecretID)
}

// line is the one of a text that has a part.
func line(text, part string) string {
	for l := range strings.Lines(text) {
		if strings.Contains(l, part) {
			return l
		}
	}
	return ""
}

// TestDoctorOfARealIstiod shows that `doctor` finds in an istiod's own mesh configuration the reasons that keep it from
// reading from us.
func TestDoctorOfARealIstiod(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.yaml", serviceEntry("a", 80))
	tributary := fixture.StartTributary(t, fixture.Files("rules", dir))
	gate := fixture.StartGate(t, tributary.XDS)
	istiod := tributary.StartIstiod(t)
	behind := fixture.StartIstiod(t, "xds://"+gate.Addr)
	look := func(istiod *fixture.Istiod, listen string, args ...string) (results, fixes string, code int) {
		t.Helper()
		return looked(t, "listen: {"+listen+", admin: '"+tributary.Admin+"'}\nconfigSources: [{name: rules, address: 'fs://"+dir+"'}]\n",
			append(args, "--istiod", "http://"+istiod.HTTP)...)
	}
	as := "xds: '" + tributary.XDS + "'"

	findings, fixes, code := look(istiod, as)
	require.Zero(t, code, findings)
	require.Contains(t, findings, "ok istiod: 2 clients are connected, and ask for versions of APIs that are served")
	require.Contains(t, findings, "warning istiod: http://"+istiod.HTTP+
		": without a line k8s:// istiod on Kubernetes no longer reads its CRDs")
	require.Contains(t, fixes, "add - address: k8s:// to its configSources")

	findings, fixes, code = look(behind, as)
	require.Equal(t, 3, code, findings)
	require.Contains(t, findings, "error istiod: http://"+behind.HTTP+": no config source has our port")
	require.Contains(t, fixes, "add - address: xds://HOST:"+tributary.XDS[strings.LastIndex(tributary.XDS, ":")+1:])
	findings, _, code = look(behind, as, "--through", gate.Addr, "--idle", "100ms") // which gives the address that istiod uses
	require.Zero(t, code, findings)
	require.Contains(t, findings, "ok keepalive: "+gate.Addr+": an idle stream stood for 100ms")
	require.NotContains(t, findings, "no config source has our port")

	certificate, key := fixture.SelfSigned(t, t.TempDir())
	findings, fixes, code = look(istiod, "xds: off, xdsTLS: {address: '"+tributary.XDS+"', certificate: '"+certificate+"', key: '"+key+"'}")
	require.Equal(t, 3, code, findings)
	require.Contains(t, findings, "with TLS: false, and that port of ours with TLS: true")
	require.Contains(t, fixes, "have tlsSettings.mode of the config source as the port is")
}
