package e2e

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/e2e/fixture"
)

const (
	scaleInterfaces = 2000
	scaleProviders  = 5
)

// TestDubboScale prints the costs of a large registry: the first sync, one provider that changes, and a ZooKeeper that
// comes back without its sessions and without its data.
func TestDubboScale(t *testing.T) {
	nightly(t, "takes a minute")
	zookeeper := fixture.StartZooKeeper(t)
	admin := zookeeper.Client(t)
	nodes := make([]string, 0, scaleInterfaces*scaleProviders)
	for i := range scaleInterfaces {
		for p := range scaleProviders {
			nodes = append(nodes, scaleNode(i, p, 100))
		}
	}
	admin.PutEphemerals(t, nodes)

	began, theirs := time.Now(), zookeeper.Usage(t).CPU
	tributary := fixture.StartTributary(t, zookeeper.Source("dubbo").With("hold", "15s").With("guard", "off"))
	tributary.WaitFor(t, 3*time.Minute, func() error {
		if s := source(t, tributary, "dubbo"); !s.Synced {
			return fmt.Errorf("the source is %v", s)
		}
		return nil
	})
	t.Logf("first sync of %d interfaces of %d providers: %v, CPU %v, ZooKeeper's %v, memory %d MiB", scaleInterfaces, scaleProviders,
		time.Since(began).Round(time.Millisecond), tributary.Usage(t).CPU, zookeeper.Usage(t).CPU-theirs, tributary.Usage(t).Memory>>20)
	t.Logf("watches: %s", zookeeper.Watches(t))
	ownCPU := tributary.Usage(t).CPU
	time.Sleep(10 * time.Second) // The test measures a period of time.
	t.Logf("no changes: %.1f %% of a processor", 100*(tributary.Usage(t).CPU-ownCPU).Seconds()/10)

	stream := fixture.OpenStream(t, tributary.XDS, "e2e-client")
	stream.Subscribe(t, serviceEntries, "")
	res := stream.NextWithin(t, time.Minute)
	require.Len(t, res.GetResources(), scaleInterfaces)
	stream.Ack(t, res)
	for n := range 5 {
		reads, changedAt := tributary.Metric(t, "tributary_dubbo_reads_total", ""), time.Now()
		admin.PutEphemerals(t, []string{scaleNode(n*399, scaleProviders, 50)})
		stream.Ack(t, stream.NextWithin(t, time.Minute))
		t.Logf("one provider more: seen after %v, parts read: %d", time.Since(changedAt).Round(time.Millisecond),
			tributary.Metric(t, "tributary_dubbo_reads_total", "")-reads)
		nodes = append(nodes, scaleNode(n*399, scaleProviders, 50))
		time.Sleep(1200 * time.Millisecond) // so that the next one comes alone
	}

	endpoints := func() int { return countEndpoints(t, tributary) }
	before := endpoints()
	require.Equal(t, len(nodes), before)
	zookeeper.Kill()
	admin.Close()
	time.Sleep(time.Second)
	require.Equal(t, before, endpoints())
	began = time.Now()
	zookeeper.Wipe(t)
	t.Logf("ZooKeeper is back, empty, after %v", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	// It may or may not have noticed: every endpoint has to stay all the time.
	admin = zookeeper.Client(t)
	time.Sleep(3 * time.Second)
	require.Equal(t, before, endpoints())
	admin.PutEphemerals(t, nodes)
	back := time.Now()
	tributary.WaitFor(t, time.Minute, func() error {
		if n := endpoints(); n != before {
			t.Fatalf("%d endpoints of %d", n, before)
		}
		if s := source(t, tributary, "dubbo"); s.State != "healthy" {
			return fmt.Errorf("the source is %v", s)
		}
		return nil
	})
	t.Logf("all registered again %v after it was back; whole again %v after that", back.Sub(began).Round(time.Millisecond),
		time.Since(back).Round(time.Millisecond))
	time.Sleep(16 * time.Second) // the hold ends
	require.Equal(t, before, endpoints())
}

func scaleNode(n, provider, weight int) string {
	name := fmt.Sprintf("com.acme.shop%d.Service%04d", n%20, n)
	return "/dubbo/" + name + "/providers/" + url.QueryEscape(fmt.Sprintf(
		"dubbo://10.%d.%d.%d:20880/%s?anyhost=true&application=app-%d&deprecated=false&dubbo=2.0.2&dynamic=true&generic=false&interface=%s&"+
			"methods=add,greet&release=3.3.6&side=provider&timestamp=1795246404074&version=1.0.0&weight=%d",
		provider, n/250, n%250+1, name, n%100, name, weight))
}

func countEndpoints(t *testing.T, tributary *fixture.Tributary) (n int) {
	t.Helper()
	entries, err := servedEntries(t.Context(), tributary)
	require.NoError(t, err)
	for _, se := range entries {
		n += len(se.Endpoints)
	}
	return n
}

func servedEntries(ctx context.Context, tributary *fixture.Tributary) (map[string]*networking.ServiceEntry, error) {
	served, err := fixture.ReadServed(ctx, tributary.XDS, serviceEntries)
	if err != nil {
		return nil, err
	}
	entries := map[string]*networking.ServiceEntry{}
	for name, s := range served {
		se := &networking.ServiceEntry{}
		if err := proto.Unmarshal([]byte(s.Body), se); err != nil {
			return nil, err
		}
		entries[name] = se
	}
	return entries, nil
}
