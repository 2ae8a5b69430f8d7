package e2e

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

const demo = "com.acme.Demo"

// demoNode is the node of a provider of demo.
func demoNode(host string) string {
	return "/dubbo/" + demo + "/providers/" + url.QueryEscape("dubbo://"+host+":20880/"+demo+"?application=a&interface="+demo)
}

// TestDubboStall shows that no endpoint goes when ZooKeeper stands still for longer than the sessions of providers and
// for less than ours: these sessions end when it goes on, and ours does not.
func TestDubboStall(t *testing.T) {
	t.Parallel()
	zookeeper := fixture.StartZooKeeper(t)
	tributary := fixture.StartTributary(t, fixture.ConfigSource{Name: "dubbo", Address: "zookeeper://" + zookeeper.Addr + "?session=30000"})
	istiod := tributary.StartIstiod(t)
	admin, want := zookeeper.Client(t), []string(nil)
	var providers []*fixture.ZooKeeperClient
	for i := range 8 {
		host := fmt.Sprintf("10.0.0.%d", i+1)
		provider := zookeeper.ClientFor(t, 2*time.Second)
		provider.PutEphemerals(t, []string{demoNode(host)})
		providers = append(providers, provider)
		want = append(want, host+":20880 100")
	}
	allServed := func() error {
		return sameHeld(t.Context(), istiod, "dubbo", "ZooKeeper stood still", map[string][]string{"com-acme-demo": want})
	}
	istiod.WaitFor(t, dubboTime, allServed)
	stays(t, allServed, func() {
		zookeeper.Signal(t, syscall.SIGSTOP)
		for _, provider := range providers {
			provider.Die() // one that comes back before ZooKeeper looks at its sessions would keep its own
		}
		time.Sleep(8 * time.Second)
		zookeeper.Signal(t, syscall.SIGCONT)
		zookeeper.Await(t, func() error {
			if remaining := len(admin.Children(t, "/dubbo/"+demo+"/providers")); remaining == len(want) {
				return errors.New("no session of a provider has ended")
			}
			return nil
		})
		time.Sleep(dubboTime)
	})
	require.Zero(t, tributary.Metric(t, "tributary_dubbo_sessions_lost_total", ""), "our session is still open")
}

// TestDubboRestore shows that nodes that an older snapshot of ZooKeeper lacks go, though the snapshot has our session
// and more was written since than we had seen: ZooKeeper sends no event for them.
func TestDubboRestore(t *testing.T) {
	t.Parallel()
	zookeeper := fixture.StartZooKeeper(t)
	zookeeper.Client(t).Put(t, demoNode("10.0.0.1"), "")
	tributary := fixture.StartTributary(t, fixture.ConfigSource{
		Name:    "dubbo",
		Address: "zookeeper://" + zookeeper.Addr + "?session=60000",
	}.With("hold", "3s"))
	istiod := tributary.StartIstiod(t)
	await := func(step string, endpoints ...string) {
		t.Helper()
		istiod.WaitFor(t, 4*dubboTime, func() error {
			return sameHeld(t.Context(), istiod, "dubbo", step, map[string][]string{"com-acme-demo": endpoints})
		})
	}
	await("one", "10.0.0.1:20880 100")
	zookeeper.Kill()
	older := t.TempDir()
	require.NoError(t, os.CopyFS(older, os.DirFS(zookeeper.Data)))
	zookeeper.Restart(t)
	zookeeper.AwaitServing(t)
	zookeeper.Client(t).Put(t, demoNode("10.0.0.2"), "")
	await("one more", "10.0.0.1:20880 100", "10.0.0.2:20880 100")
	zookeeper.Kill()
	require.NoError(t, os.RemoveAll(zookeeper.Data))
	require.NoError(t, os.CopyFS(zookeeper.Data, os.DirFS(older)))
	zookeeper.Restart(t)
	zookeeper.AwaitServing(t)
	admin := zookeeper.Client(t)
	for i := range 50 {
		admin.Put(t, fmt.Sprintf("/other/%d", i), "")
	}
	await("the older snapshot", "10.0.0.1:20880 100")
	require.Zero(t, tributary.Metric(t, "tributary_dubbo_sessions_lost_total", ""), "our session is still open")
}
