package dubbo

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/intake"
	"tributary/memstore"
	"tributary/sources"
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/zookeeper/zktest"
	"tributary/sources/guard"
	"tributary/sources/sourcetest"
)

// rig is a source that runs on a ZooKeeper of the test.
type rig struct {
	*sourcetest.Running

	server *zktest.Server
	source *Source
	table  *memstore.Table
}

// start runs a source; change changes it before.
func start(t *testing.T, server *zktest.Server, settings Settings, change ...func(*Source)) *rig {
	t.Helper()
	return startWithin(t, intake.Limits{}, server, settings, change...)
}

func startWithin(t *testing.T, limits intake.Limits, server *zktest.Server, settings Settings, change ...func(*Source)) *rig {
	t.Helper()
	b := &rig{server: server, table: &memstore.Table{}, source: sourceOf(t, server, settings)}
	for _, c := range change {
		c(b.source)
	}
	b.Running = sourcetest.Start(t, sources.Spec{
		Name: "dubbo", Source: b.source, Table: b.table, Partial: true, Guard: guard.Settings{Off: true},
	}, sources.Options{
		NewBackOff: func() backoff.BackOff { return backoff.NewConstantBackOff(time.Millisecond) }, Intake: limits,
	})
	return b
}

// restart runs a new source on the state that the old one published, after meanwhile.
func (b *rig) restart(settings Settings, meanwhile func()) {
	b.T.Helper()
	source := sourceOf(b.T, b.server, settings)
	source.asker = b.source.asker
	b.restartWith(source, meanwhile)
}

func (b *rig) restartWith(source *Source, meanwhile func()) {
	b.T.Helper()
	b.source = source
	b.Replace(source, meanwhile)
}

func (b *rig) awaitMessage(part string) {
	b.T.Helper()
	b.Await(part, func() bool { return strings.Contains(b.Status().Message, part) })
}

func (b *rig) awaitPrefix(message string) {
	b.T.Helper()
	b.Await(message, func() bool { return strings.HasPrefix(b.Status().Message, message) })
}

// show returns the served endpoints: "name address:port*weight…".
func (b *rig) show() (lines []string) {
	for r := range b.table.Snapshot().All() {
		spec, err := r.Spec()
		require.NoError(b.T, err)
		line := r.Key().Name
		switch of := spec.(type) {
		case *networking.ServiceEntry:
			for _, e := range of.Endpoints {
				for _, port := range e.Ports {
					line += fmt.Sprintf(" %s:%d*%d", e.Address, port, e.Weight)
				}
			}
		case *networking.Sidecar:
			line += " sees " + strings.Join(of.Egress[0].Hosts, " ")
		case *networking.DestinationRule:
			line += " has"
			for _, subset := range of.Subsets {
				line += " " + subset.Name
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// awaitAll waits until exactly that is served.
func (b *rig) awaitAll(want ...string) {
	b.T.Helper()
	b.Await(fmt.Sprintf("it is %v", want), func() bool { return slices.Equal(b.show(), want) })
}

// requireAll checks that exactly that is served.
func (b *rig) requireAll(want ...string) {
	b.T.Helper()
	require.Equal(b.T, want, b.show())
}

// patiently returns settings with holds that outlast a test.
func patiently() Settings {
	s := quickly()
	s.Hold, s.KeepEmpty, s.Grace = time.Hour, time.Hour, time.Hour
	return s
}

// node is the path of a provider, at the time that it started.
func node(iface, address, params string, started int) string {
	text := fmt.Sprintf("dubbo://%s/%s?application=app&interface=%s&timestamp=%d", address, iface, iface, 1_700_000_000_000+started)
	if params != "" {
		text += "&" + params
	}
	return "/dubbo/" + iface + "/providers/" + url.QueryEscape(text)
}

const leaf = "127.0.0.1" // Curator's content of nodes

// nodeOf is the node of a provider as text: interface, host with a port other than 20880, parameters, and the time that
// it started: "a 10.0.0.1 weight=7 2". The last two may be missing.
func nodeOf(text string) string {
	words, params, started := strings.Fields(text), "", 1
	for _, word := range words[2:] {
		if n, err := strconv.Atoi(word); err == nil {
			started = n
		} else {
			params = word
		}
	}
	if !strings.Contains(words[1], ":") {
		words[1] += ":20880"
	}
	return node(words[0], words[1], params, started)
}

func register(server *zktest.Server, providers ...string) {
	for _, text := range providers {
		server.Put(nodeOf(text), leaf)
	}
}

func unregister(server *zktest.Server, providers ...string) {
	for _, text := range providers {
		server.Delete(nodeOf(text))
	}
}

// applicationOf registers an instance, with the metadata of its revision in the report.
func applicationOf(server *zktest.Server, name, address, revision string, services ...string) {
	instanceOf(server, name, address, revision)
	report(server, "/dubbo/metadata", name, revision, services...)
}

func emptyRun(t *testing.T) *run { return newRun(sourceOf(t, zktest.New(), quickly()), nil) }

// partsOf are the parts of interfaces, as ZooKeeper has them: providers and configurators of each.
func partsOf(interfaces ...string) (parts []backend.Part) {
	for _, name := range interfaces {
		for _, c := range []backend.Category{backend.Providers, backend.Configurators} {
			parts = append(parts, backend.Part{Interface: name, Category: c, Node: name})
		}
	}
	return parts
}
