package dubbo

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/dubbo/nacos"
	"tributary/sources/dubbo/zookeeper/zktest"
	"tributary/sources/nacos/nacostest"
)

// TestModelInNacos has instances and providers come and go, lose their names in its lists or the whole Nacos its data,
// and Nacos refuse to tell of some.
func TestModelInNacos(t *testing.T) {
	for seed := *modelFirst; seed < *modelFirst+*modelSeeds; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) { nacosModel(t, uint64(seed)) })
	}
}

func nacosModel(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 15))
	server := nacostest.Start(t)
	settings := modelSettings()
	require.NoError(t, settings.complete())
	a, err := nacos.ParseAddress(server.Address())
	require.NoError(t, err)
	b := start(t, zktest.New(), settings, func(s *Source) { s.registry = nacos.New(a, nil, 3*time.Millisecond, time.Hour) })
	type modelProvider struct {
		service, id, iface, version, host string
		port                              int
		meta                              map[string]string
		ifaces                            []string
	}
	registered := map[string]modelProvider{}
	reported := map[string]bool{}
	refused := map[string]bool{}
	var log []string
	say := func(f string, a ...any) { log = append(log, fmt.Sprintf(f, a...)) }
	put := func(o modelProvider) {
		server.Put("DEFAULT_GROUP", o.service, o.id, nacostest.Instance(o.host, o.port, o.meta))
	}
	away := false
	for range 40 {
		host, port := fmt.Sprintf("10.0.0.%d", 1+random.IntN(3)), 20880+random.IntN(2)
		id := fmt.Sprintf("%s:%d", host, port)
		switch random.IntN(10) {
		case 0, 1, 2:
			iface, version := []string{"a", "b"}[random.IntN(2)], []string{"", "1"}[random.IntN(2)]
			o := modelProvider{service: "providers:" + iface + ":" + version + ":", id: id, iface: iface, version: version, host: host, port: port}
			o.meta = map[string]string{
				"application": "x", "category": "providers", "protocol": "dubbo", "path": iface, "interface": iface,
				"version": version,
			}
			registered[o.service+"|"+id] = o
			put(o)
			say("put %s %s", o.service, id)
		case 3, 4, 5:
			app := fmt.Sprintf("app%d", random.IntN(2))
			var set []string
			for _, i := range []string{"a", "b", "c"} {
				if random.IntN(2) == 0 {
					set = append(set, i)
				}
			}
			rev := "r" + strings.Join(set, "")
			if len(set) == 0 {
				rev = "0"
			}
			var svcs []string
			for _, i := range set {
				svcs = append(svcs, fmt.Sprintf(`"%s:dubbo":{"name":%q,"protocol":"dubbo","path":%q,"params":{}}`, i, i, i))
			}
			doc := fmt.Sprintf(`{"app":%q,"revision":%q,"services":{%s}}`, app, rev, strings.Join(svcs, ","))
			if rev != "0" { // at once, or at the end
				reported[app+"|"+rev+"|"+doc] = true
				if random.IntN(2) == 0 {
					server.Config(app, rev, doc)
				}
			}
			o := modelProvider{service: app, id: id, host: host, port: port, ifaces: set}
			o.meta = map[string]string{"dubbo.endpoints": fmt.Sprintf(`[{"port":%d,"protocol":"dubbo"}]`, port), "dubbo.metadata.revision": rev}
			registered[app+"|"+id] = o
			put(o)
			say("inst %s %s %s", app, id, rev)
		case 6, 7:
			for k, o := range registered {
				delete(registered, k)
				server.Delete("DEFAULT_GROUP", o.service, o.id)
				listed := false
				for _, remaining := range registered {
					listed = listed || remaining.service == o.service
				}
				if !listed && random.IntN(2) == 0 {
					server.Unlist("DEFAULT_GROUP", o.service)
					say("unlist %s", o.service)
				}
				say("del %s", k)
				break
			}
		case 8:
			if away {
				server.Restart()
				for _, o := range registered {
					put(o)
				}
				away = false
				say("back")
			} else {
				server.Stop()
				server.Forget()
				away = true
				say("away")
			}
		case 9:
			n := []string{"providers:a::", "app0"}[random.IntN(2)]
			refused[n] = !refused[n]
			if refused[n] {
				server.Refuse("DEFAULT_GROUP", n, "no")
			} else {
				server.Refuse("DEFAULT_GROUP", n, "")
			}
			say("refuse %s %v", n, refused[n])
		}
		time.Sleep(time.Duration(random.IntN(8)) * time.Millisecond)
	}
	server.Restart()
	server.Refuse("DEFAULT_GROUP", "providers:a::", "")
	server.Refuse("DEFAULT_GROUP", "app0", "")
	for _, o := range registered {
		put(o)
	}
	for k := range reported {
		p := strings.SplitN(k, "|", 3)
		server.Config(p[0], p[1], p[2])
	}
	want := map[string]map[string]bool{}
	add := func(iface, version, host string, port int) {
		name := iface
		if version != "" {
			name += "-" + version
		}
		if want[name] == nil {
			want[name] = map[string]bool{}
		}
		want[name][fmt.Sprintf("%s:%d*100", host, port)] = true
	}
	for _, o := range registered {
		if o.iface != "" {
			add(o.iface, o.version, o.host, o.port)
		}
		for _, i := range o.ifaces {
			add(i, "", o.host, o.port)
		}
	}
	var lines []string
	for name, es := range want {
		var l []string
		for e := range es {
			l = append(l, e)
		}
		sort.Strings(l)
		lines = append(lines, name+" "+strings.Join(l, " "))
	}
	sort.Strings(lines)
	ok := false
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if slices.Equal(b.show(), lines) {
			ok = true
			break
		}
	}
	if !ok {
		t.Errorf("seed %d not at rest after 40s\nwant %v\ngot  %v\nstatus %s %q\n%s", seed, lines, b.show(), b.Status().State, b.Status().Message,
			strings.Join(log, "\n"))
	}
}
