package relay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/sources/consul/consultest"
	"tributary/sources/eureka/eurekatest"
	"tributary/sources/nacos/nacostest"
)

// kindOfRegistry is a registry of some kind, in memory.
type kindOfRegistry struct {
	start func(t *testing.T) registered
	// options of its source, each of which a reload may add and remove. Options that select services of a Consul are left
	// out: the stored names of an earlier run cannot be compared then, so that a loss of a part of the data is not
	// noticed.
	options []string
}

// registered is a registry in which the model registers.
type registered struct {
	address string
	put     func(service, address string)
	wipe    func() // restarts the registry without its data
}

var commonOptions = []string{
	"transform: {labels: {add: {t: u}}}", "transform: {namespaces: {dubbo: other, nacos: other, eureka: other, consul: other}}",
	"validation: warn",
}

var dubboOptions = append([]string{
	"labelParams: [env]", "askProviders: false", "namespace: mesh", "vips: none", "subsets: group", "warmUp: 1m", "servicePorts: {dubbo: 999}",
	"hostTemplate: 'x.{interface}-{group}-{version}'", "hostTemplate: '{interface}'",
}, commonOptions...)

var kindsOfRegistries = map[string]kindOfRegistry{
	"nacos": {func(t *testing.T) registered {
		s := nacostest.Start(t)
		return registered{s.Address() + "&kind=services", func(service, address string) {
			s.Put("DEFAULT_GROUP", service, address, nacostest.Instance(address, 8080, map[string]string{"zone": "z"}))
		}, func() { s.Stop(); s.Forget(); s.Restart() }}
	}, append([]string{
		"labelMeta: [zone]", "namespace: mesh", "vips: all", "hostTemplate: '{service}.{group}.x'", "hostTemplate: '{service}.{group}.{cluster}'",
		"servicePort: 999",
		"defaultProtocol: http", "services: ['com.*']",
	}, commonOptions...)},
	"eureka": {func(t *testing.T) registered {
		s := eurekatest.Start(t)
		return registered{s.Address(), func(service, address string) {
			s.Put(service, eurekatest.Instance(address, address, 8080, map[string]string{"zone": "z"}))
		}, s.Forget}
	}, append([]string{
		"labelMeta: [zone]", "namespace: mesh", "vips: all", "hostTemplate: '{app}.x'", "hostTemplate: '{vip}.{app}'", "servicePort: 999",
		"statuses: [UP, STARTING]", "defaultProtocol: tcp", "region: r", "apps: ['com.*']",
	}, commonOptions...)},
	"consul": {func(t *testing.T) registered {
		s := consultest.New(t)
		return registered{"consul://" + s.Address(), func(service, address string) {
			s.Add(service, consultest.Instance(service, address, address, 8080))
		}, func() { s.Wipe() }}
	}, append([]string{
		"labelPrefix: p", "namespace: mesh", "vips: all", "hostTemplate: '{service}.x'", "servicePort: 999", "defaultProtocol: http",
		"aliases: none",
		"endpoints: workloadEntries", "strictChecks: [passing]",
	}, commonOptions...)},
	"dubbo in nacos": {func(t *testing.T) registered {
		s := nacostest.Start(t)
		return registered{s.Address(), func(service, address string) {
			s.Put("DEFAULT_GROUP", "providers:"+service+":1.0.0:g", address, nacostest.Instance(address, 20880, map[string]string{
				"category": "providers", "protocol": "dubbo", "path": service, "interface": service, "version": "1.0.0", "group": "g",
				"application": "a", "env": "e",
			}))
		}, func() { s.Stop(); s.Forget(); s.Restart() }}
	}, append([]string{"registerMode: interface", "interfaces: ['com.*']"}, dubboOptions...)},
	"dubbo in consul": {func(t *testing.T) registered {
		s := consultest.New(t)
		return registered{"consul://" + s.Address() + "?kind=dubbo", func(service, address string) {
			s.Add(service, consultest.Provider(service, address, "&env=e&group=g&version=1.0.0"))
		}, func() { s.Wipe() }}
	}, dubboOptions},
}

// TestReloadsOfRegistries is a model of held endpoints while the options of their source change. A registry loses its
// data and gets some or all of it again; the options change by reloads and by restarts. No instance that ran all the
// time is ever missing. At the end, the state is that of a fresh start.
//
// A run is repeated by its seed: go test ./internal/relay -run TestReloadsOfRegistries -reloads.seed N -reloads 2000.
func TestReloadsOfRegistries(t *testing.T) {
	t.Parallel()
	first, last := uint64(1), *seeds
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for name, kind := range kindsOfRegistries {
		for s := first; s <= last; s++ {
			t.Run(fmt.Sprint(name, " seed=", s), func(t *testing.T) {
				t.Parallel()
				m := &registryModel{t: t, rand: rand.New(rand.NewPCG(s, s)), dir: t.TempDir(), kind: kind, registered: kind.start(t)}
				m.run(*reloads)
			})
		}
	}
}

// registryModel is the world of one run.
type registryModel struct {
	t    *testing.T
	rand *rand.Rand
	dir  string
	kind kindOfRegistry
	registered
	options []string
	relay   *rig
	missing [][2]string // services and addresses that were not told again since it lost its data
	history []string
}

// running are the services, each with the addresses of all that run.
func running() (instances [][2]string) {
	for i := range 3 {
		for j := range 4 {
			instances = append(instances, [2]string{fmt.Sprint("com.acme.s", i), fmt.Sprintf("10.0.%d.%d", i, j+1)})
		}
	}
	return instances
}

func (d *registryModel) run(n int) {
	d.t.Cleanup(func() {
		if d.t.Failed() {
			d.t.Log(strings.Join(d.history, "\n"))
		}
	})
	d.missing = running()
	d.register(len(d.missing))
	configured(d.t, d.dir, d.source())
	d.begin()
	d.converge()
	for range n {
		switch d.rand.IntN(6) {
		case 0:
			d.logStep("it loses its data")
			d.wipe()
			d.missing = running()
		case 1:
			d.logStep("some register anew")
			d.register(d.rand.IntN(1 + len(d.missing)))
		case 2:
			d.converge()
		case 3:
			d.edit()
			d.logStep("restart: %s", d.source())
			d.relay.stop()
			configured(d.t, d.dir, d.source())
			d.begin()
		default:
			d.edit()
			d.logStep("reload: %s", d.source())
			d.relay.reload(d.t, d.source())
			if d.rand.IntN(2) == 0 {
				d.awaitRead(d.relay)
			}
		}
		if d.t.Failed() {
			return
		}
	}
	d.converge()
}

func (d *registryModel) logStep(format string, args ...any) {
	d.history = append(d.history, fmt.Sprintf(format, args...))
}

func (d *registryModel) source() string {
	return strings.Join(append([]string{"name: r, address: '" + d.address + "', guard: off"}, d.options...), ", ")
}

// edit adds an option, or removes one.
func (d *registryModel) edit() {
	if n := len(d.options); n > 0 && d.rand.IntN(2) == 0 {
		d.options = slices.Delete(slices.Clone(d.options), 0, 1)
		return
	}
	option := d.kind.options[d.rand.IntN(len(d.kind.options))]
	key, _, _ := strings.Cut(option, ":")
	d.options = append(slices.DeleteFunc(slices.Clone(d.options), func(o string) bool { return strings.HasPrefix(o, key+":") }), option)
}

// register registers the first n missing instances again.
func (d *registryModel) register(n int) {
	for _, instance := range d.missing[:n] {
		d.put(instance[0], instance[1])
	}
	d.missing = d.missing[n:]
}

// begin starts the relay, and looks at its view all the time, once it is there.
func (d *registryModel) begin() {
	d.relay = start(d.t, d.dir)
	d.relay.awaitReady(d.t)
	rig := d.relay
	rig.onChange(d.t, func() {
		if missing := absent(rig); len(missing) > 0 {
			d.t.Errorf("missing: %v", missing)
		}
	})
}

// absent are the addresses that run and are not served.
func absent(r *rig) (missing []string) {
	served := map[string]bool{}
	for res := range r.view.Snapshot().All() {
		spec, err := res.Spec()
		if err != nil {
			continue
		}
		switch is := spec.(type) {
		case *networking.ServiceEntry:
			for _, e := range is.Endpoints {
				served[e.Address] = true
			}
		case *networking.WorkloadEntry:
			served[is.Address] = true
		}
	}
	for _, instance := range running() {
		if !served[instance[1]] {
			missing = append(missing, instance[1])
		}
	}
	return missing
}

func (d *registryModel) awaitRead(r *rig) {
	d.t.Helper()
	eventually(d.t, func() error {
		if s := r.supervisor.Status(); len(s) != 1 || !s[0].Synced || !r.view.Synced() {
			return fmt.Errorf("not read: %+v", s)
		}
		return nil
	})
}

// converge registers all instances, and waits until the relay serves the same as a fresh start.
func (d *registryModel) converge() {
	d.t.Helper()
	d.logStep("all register anew")
	d.register(len(d.missing))
	dir := d.t.TempDir()
	configured(d.t, dir, d.source())
	fresh := start(d.t, dir)
	d.awaitRead(fresh)
	defer fresh.stop()
	eventually(d.t, func() error {
		want, now := viewed(fresh), viewed(d.relay)
		if fmt.Sprint(want) != fmt.Sprint(now) || len(absent(fresh)) > 0 {
			return fmt.Errorf("%s\ngot  %v\nwant %v", d.source(), now, want)
		}
		return nil
	})
}

// TestReload_AddressOfOtherScheme: a source goes on under its name, even if its system is another one. The objects of
// the former system go when the present one was read; with registries after hold, as all that they do not list.
func TestReload_AddressOfOtherScheme(t *testing.T) {
	t.Parallel()
	for name, kind := range kindsOfRegistries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, registry := t.TempDir(), kind.start(t)
			for _, instance := range running() {
				registry.put(instance[0], instance[1])
			}
			fill(t, dir, "one/f.yaml: shop/x")
			file, second := "name: r, address: 'fs://./one'", "name: r, address: '"+registry.address+"', guard: off"
			if !strings.Contains(name, "consul") {
				second += ", hold: 1s"
			}
			serves := func(r *rig, isFile bool) {
				t.Helper()
				eventually(t, func() error {
					_, hasFile := viewed(r)[x]
					if missing := len(absent(r)); hasFile != isFile || isFile && missing != len(running()) || !isFile && missing > 0 {
						return fmt.Errorf("%s: x is served: %v, missing: %d", r.sources.active[0].config.Address, hasFile, missing)
					}
					return nil
				})
			}
			configured(t, dir, file)
			r := start(t, dir)
			serves(r, true)
			r.reload(t, second)
			serves(r, false)
			r.stop()
			configured(t, dir, file)
			r = start(t, dir)
			serves(r, true)
		})
	}
}
