package dubbo

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"tributary/sources/dubbo/zookeeper/zktest"
)

var (
	modelSeeds = flag.Int("model.seeds", 3, "how many histories the models have")
	modelFirst = flag.Int("model.first", 0, "the seed of the first one")
)

// TestModel has providers come and go at both levels, sessions expire, rules change, nodes denied, metadata come late
// and the source restart. At rest, with every node readable and no hold left, the served endpoints must equal the
// registered ones.
func TestModel(t *testing.T) {
	for seed := *modelFirst; seed < *modelFirst+*modelSeeds; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) { model(t, uint64(seed)) })
	}
}

// modelSettings are those of models: held and empty services stay only briefly.
func modelSettings() Settings {
	s := quickly()
	s.Hold, s.KeepEmpty, s.Grace = 30*time.Millisecond, time.Millisecond, time.Millisecond
	return s
}

// reg is a registration at interface level.
type reg struct {
	iface, group, host string
	port, weight       int
	app                string
}

func model(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 14))
	server := zktest.New()
	settings := modelSettings()
	b := start(t, server, settings)
	ifaces, groups := []string{"a", "b", "x.C"}, []string{"", "g1"}
	nodes := map[string]reg{} // interface level, by path
	type inst struct {
		app, host, rev string
		port           int
	}
	insts := map[string]inst{}
	revs := map[string][]string{} // app/rev -> interfaces
	reported := map[string]bool{}
	rules := map[string]map[string]int{} // iface -> host -> weight; path by content
	var log []string
	say := func(f string, a ...any) { log = append(log, fmt.Sprintf(f, a...)) }
	rulePath := func(iface, host string, w int) string {
		return "/dubbo/" + iface + "/configurators/" + url.QueryEscape(fmt.Sprintf("override://%s/%s?category=configurators&weight=%d", host,
			iface, w))
	}
	away := false
	for range 40 {
		host := fmt.Sprintf("10.0.0.%d", 1+random.IntN(3))
		port := 20880 + random.IntN(2)
		app := fmt.Sprintf("app%d", random.IntN(2))
		iface := ifaces[random.IntN(3)]
		switch random.IntN(13) {
		case 0, 1, 2:
			r := reg{iface, groups[random.IntN(2)], host, port, 100, app}
			text := fmt.Sprintf("dubbo://%s:%d/%s?application=%s&interface=%s&timestamp=1700000000001", host, port, iface, app, iface)
			if r.group != "" {
				text += "&group=" + r.group
			}
			p := "/dubbo/" + iface + "/providers/" + url.QueryEscape(text)
			server.Put(p, leaf)
			nodes[p] = r
			say("put %+v", r)
		case 3:
			for p, r := range nodes {
				server.Delete(p)
				delete(nodes, p)
				say("del %+v", r)
				break
			}
		case 4, 5, 6: // instance, in place perhaps
			set := []string{}
			for _, i := range ifaces {
				if random.IntN(2) == 0 {
					set = append(set, i)
				}
			}
			rev := "r" + strings.Join(set, "")
			if len(set) == 0 {
				rev = "0"
			}
			revs[app+"/"+rev] = set
			if random.IntN(2) == 0 && rev != "0" {
				report(server, "/dubbo/metadata", app, rev, set...)
				reported[app+"/"+rev] = true
			}
			addr := fmt.Sprintf("%s:%d", host, port)
			instanceOf(server, app, addr, rev)
			insts[app+"/"+addr] = inst{app, host, rev, port}
			say("inst %s %s %s reported %v", app, addr, rev, reported[app+"/"+rev])
		case 7:
			for k := range insts {
				server.Delete("/services/" + k)
				delete(insts, k)
				say("del inst %s", k)
				break
			}
		case 8:
			w := 1 + random.IntN(3)
			if rules[iface] == nil {
				rules[iface] = map[string]int{}
			}
			if old, ok := rules[iface][host]; ok {
				server.Delete(rulePath(iface, host, old))
			}
			server.Put(rulePath(iface, host, w), leaf)
			rules[iface][host] = w
			say("rule %s %s %d", iface, host, w)
		case 9:
			if away {
				server.Reconnect()
				away = false
				say("mend")
			} else if random.IntN(2) == 0 {
				server.Expire()
				away = true
				say("expire")
			} else {
				server.Cut()
				away = true
				say("cut")
			}
		case 10:
			p := []string{"/dubbo/a", "/services/app0", "/dubbo/metadata"}[random.IntN(3)]
			if random.IntN(2) == 0 {
				server.Deny(p)
				say("deny %s", p)
			} else {
				server.Allow(p)
				say("allow %s", p)
			}
		case 11:
			if random.IntN(3) == 0 {
				b.restart(settings, func() {})
				say("restart")
			}
		case 12:
			server.Delete("/dubbo/" + iface)
			for p, r := range nodes {
				if r.iface == iface {
					delete(nodes, p)
				}
			}
			delete(rules, iface)
			say("wipe %s", iface)
		}
		time.Sleep(time.Duration(random.IntN(8)) * time.Millisecond)
	}
	// at rest
	server.Reconnect()
	for _, p := range []string{"/dubbo/a", "/services/app0", "/dubbo/metadata"} {
		server.Allow(p)
	}
	for k, set := range revs {
		app, rev, _ := strings.Cut(k, "/")
		if rev != "0" {
			report(server, "/dubbo/metadata", app, rev, set...)
		}
	}
	want := map[string]map[string]bool{}
	add := func(iface, group, host string, port int) {
		name := strings.ToLower(strings.ReplaceAll(iface, ".", "-"))
		if group != "" {
			name += "-" + group
		}
		w := 100
		if r, ok := rules[iface][host]; ok && group == "" {
			w = r
		}
		if want[name] == nil {
			want[name] = map[string]bool{}
		}
		want[name][fmt.Sprintf("%s:%d*%d", host, port, w)] = true
	}
	for _, r := range nodes {
		add(r.iface, r.group, r.host, r.port)
	}
	for _, i := range insts {
		for _, f := range revs[i.app+"/"+i.rev] {
			add(f, "", i.host, i.port)
		}
	}
	var lines []string
	for name, es := range want {
		l := name
		var endpoints []string
		for e := range es {
			endpoints = append(endpoints, e)
		}
		sort.Strings(endpoints)
		lines = append(lines, l+" "+strings.Join(endpoints, " "))
	}
	sort.Strings(lines)
	b.Await(fmt.Sprintf("rest with seed %d: %v\n%s", seed, lines, strings.Join(log, "\n")), func() bool {
		return slices.Equal(b.show(), lines)
	})
	b.Stop()
}
