package envoy

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tributary/resource"
	"tributary/server/xds"
)

// What a storm of rejections costs those who reject nothing, as figures: ENVOY_STORM is how many streams reject all that they are sent, from ENVOY_STORM_HOSTS
// addresses, each for a while and then anew.
func TestStormOfRejections(t *testing.T) {
	streams, _ := strconv.Atoi(os.Getenv("ENVOY_STORM"))
	if streams == 0 {
		t.Skip("ENVOY_STORM is how many streams")
	}
	hosts, _ := strconv.Atoi(cmp.Or(os.Getenv("ENVOY_STORM_HOSTS"), "1"))
	const services, honest = 1000, 10
	var objects []*resource.Resource
	for i := range services {
		objects = append(objects, serviceEntry(t, fmt.Sprint("s", i)), answering(t, fmt.Sprint("vs", i), fmt.Sprintf("first-%d.", i)))
	}
	s := serve(t, objects...)
	var all []*critic
	for i := range honest {
		all = append(all, s.critic(nodes[i%3], disliking, xds.ListenerURL, xds.EndpointURL))
	}
	s.eventually(func() bool {
		return !slices.ContainsFunc(all, func(c *critic) bool { return !c.hasRoutes("first-0.") })
	}, "")
	n := 0
	measure := func(what string) {
		var took []time.Duration
		cpu := used()
		begin := time.Now()
		for time.Since(begin) < 15*time.Second {
			n++
			text := fmt.Sprintf("text-%d.", n)
			at := time.Now()
			s.table.Apply([]*resource.Resource{answering(t, fmt.Sprint("vs", n%services), text)}, nil)
			for _, c := range all {
				for !c.hasRoutes(text) {
					time.Sleep(200 * time.Microsecond)
				}
			}
			took = append(took, time.Since(at))
			time.Sleep(20 * time.Millisecond)
		}
		slices.Sort(took)
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		t.Logf("%s: %d changes, median %v, p99 %v, most %v; %.2f processors, heap %d MB; ends %v, in quarantine %d", what, len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1],
			(used()-cpu).Seconds()/time.Since(begin).Seconds(), m.HeapAlloc>>20, s.ends(), len(s.quarantined()))
	}
	measure("peace")
	var over atomic.Bool
	var coming sync.Mutex
	var attackers sync.WaitGroup
	for i := range streams {
		attackers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0)) //nolint:gosec // a test's
			for !over.Load() {
				coming.Lock()
				s.from = &net.TCPAddr{IP: net.IPv4(127, 0, 2, byte(1+i%hosts))}
				c := s.critic(nodes[random.IntN(3)], func(_, name string, _ []byte) string {
					if os.Getenv("ENVOY_STORM_ACCEPTS") != "" { // for comparison
						return ""
					}
					return fmt.Sprintf("cluster outbound|80||s%d.internal of %s is wrong", random.IntN(services), name)
				}, xds.ListenerURL, xds.EndpointURL)
				coming.Unlock()
				time.Sleep(time.Duration(1000+random.IntN(3000)) * time.Millisecond)
				c.leave()
			}
		})
	}
	time.Sleep(3 * time.Second)
	measure("storm")
	over.Store(true)
	attackers.Wait()
	measure("peace after it")
	s.eventually(func() bool { return len(s.open()) == 0 }, "who is gone complains of nothing")
}

func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
