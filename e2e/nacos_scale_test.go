package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

const (
	nacosServices  = 1000
	nacosInstances = 5
)

// TestNacosScale prints the costs of a large Nacos: the first sync, a time without changes, and one new instance.
func TestNacosScale(t *testing.T) {
	nightly(t, "takes a minute")
	for _, version := range nacosVersions {
		t.Run(version, func(t *testing.T) {
			n := fixture.StartNacos(t, version)
			for i := range nacosInstances {
				fixture.AwaitReady(t, fixture.NacosInstance{
					Service: "svc", IP: fmt.Sprintf("10.0.0.%d", i+1), Port: 8080,
					Count: nacosServices,
				}.Start(t, n))
			}
			time.Sleep(2 * time.Second) // so that its work for them is done
			began, theirs := time.Now(), n.Usage(t).CPU
			tributary := fixture.StartTributary(t, n.Source("nacos", "kind=services").With("guard", "off"))
			tributary.WaitFor(t, 3*time.Minute, func() error {
				if s := source(t, tributary, "nacos"); !s.Synced {
					return fmt.Errorf("the source is %v", s)
				}
				return nil
			})
			t.Logf("first sync of %d services of %d instances: %v, CPU %v, Nacos' %v, memory %d MiB", nacosServices, nacosInstances,
				time.Since(began).Round(time.Millisecond), tributary.Usage(t).CPU, n.Usage(t).CPU-theirs, tributary.Usage(t).Memory>>20)
			time.Sleep(3 * time.Second)
			ownCPU, theirs := tributary.Usage(t).CPU, n.Usage(t).CPU
			time.Sleep(20 * time.Second) // The test measures a period of time.
			t.Logf("no changes: %.1f %% of a processor, and %.1f %% of Nacos, which also serves its own clients",
				100*(tributary.Usage(t).CPU-ownCPU).Seconds()/20, 100*(n.Usage(t).CPU-theirs).Seconds()/20)

			stream := fixture.OpenStream(t, tributary.XDS, "e2e-client")
			stream.Subscribe(t, serviceEntries, "")
			res := stream.NextWithin(t, time.Minute)
			require.Len(t, res.GetResources(), nacosServices)
			stream.Ack(t, res)
			for i := range 5 {
				added := fixture.NacosInstance{Service: fmt.Sprint("svc", 100*i), IP: "10.0.1.1", Port: 8080}
				p := added.Start(t, n)
				fixture.AwaitReady(t, p)
				changedAt := time.Now()
				stream.Ack(t, stream.NextWithin(t, time.Minute))
				t.Logf("one instance more: seen %v after its client had the answer", time.Since(changedAt).Round(time.Millisecond))
				time.Sleep(2 * time.Second) // so that the next one comes alone
			}
		})
	}
}
