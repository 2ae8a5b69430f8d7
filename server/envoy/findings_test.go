package envoy

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

var update = flag.Bool("update", false, "write testdata")

// meshOf returns the objects in a file of testdata, valid or not.
func meshOf(t *testing.T, file string) *memstore.Table {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	table := new(memstore.Table)
	table.Apply(decoded(t, string(text)), nil)
	return table
}

func decoded(t testing.TB, text string) (objects []*resource.Resource) {
	t.Helper()
	for _, d := range resource.Decode("test.yaml", []byte(text), resource.Options{}) {
		require.Empty(t, d.Errors)
		if d.Resource != nil {
			objects = append(objects, d.Resource)
		}
	}
	return objects
}

// catalogOf returns a catalog of the objects of a text.
func catalogOf(t *testing.T, text string) *Catalog {
	t.Helper()
	var table memstore.Table
	table.Apply(decoded(t, text), nil)
	return catalogOfTable(&table)
}

func catalogOfTable(table *memstore.Table) *Catalog {
	c := New(table, Options{Log: slog.New(slog.DiscardHandler)})
	c.reset(table.Snapshot(), true)
	return c
}

// dumpText returns a client's resources for the objects in a text, by type and name.
func dumpText(t *testing.T, text string, n *corev3.Node) map[string]proto.Message {
	t.Helper()
	return dump(t, catalogOf(t, text), n)
}

// Findings name every reference to a missing object and every conflict, and the remaining configuration is served.
func TestFindings(t *testing.T) {
	table := meshOf(t, "bad.yaml")
	findings, err := Findings(table)
	require.NoError(t, err)
	var builder strings.Builder
	for r := range table.Snapshot().All() {
		if texts := findings(r); len(texts) > 0 {
			fmt.Fprintf(&builder, "%s\n  %s\n", r.Key(), strings.Join(texts, "\n  "))
		}
	}
	const file = "testdata/bad.findings"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(builder.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), builder.String())
}

// Findings describe the current objects and the connected clients.
func TestFindingsFollow(t *testing.T) {
	table := meshOf(t, "bad.yaml")
	catalog := catalogOfTable(table)
	database := table.Snapshot().Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: "database"})
	require.Empty(t, catalog.WithoutEffect(database))
	require.Empty(t, catalog.Affected())
	_, _, err := catalog.Collection(t.Context(), node("default", "NONE", ""), xds.ClusterURL)
	require.NoError(t, err)
	taken := "spec.ports[0] has no effect on Envoys: shop.internal, which has precedence, speaks HTTP on 127.0.0.1:80"
	require.Contains(t, catalog.WithoutEffect(database), taken)
	require.Contains(t, catalog.Affected(), database.Key())
	_, _, err = catalog.Collection(t.Context(), node("default", "REDIRECT", ""), xds.ClusterURL)
	require.NoError(t, err)
	require.Contains(t, catalog.WithoutEffect(database), taken+" (sidecars in default)",
		"it has an address of its own where connections are redirected")

	_, first, _ := table.Changes(0)
	table.Apply(nil, []resource.Key{
		{Kind: resource.ServiceEntry, Namespace: "default", Name: "shop"}, {Kind: resource.ServiceEntry, Namespace: "default", Name: "cache"},
	})
	keys, snap, ok := table.Changes(first.Revision())
	require.True(t, ok)
	catalog.apply(keys, snap, true)
	require.Empty(t, catalog.WithoutEffect(database))
	require.NotContains(t, catalog.Affected(), database.Key())
}

// Accepted log settings cause no findings: e2e checks the same settings with a real Envoy.
func TestAccessLog_AcceptedSettings(t *testing.T) {
	table := meshOf(t, "logs.yaml")
	findings, err := Findings(table)
	require.NoError(t, err)
	for r := range table.Snapshot().All() {
		require.Empty(t, findings(r), r.Key())
	}
	require.Contains(t, fmt.Sprint(dump(t, catalogOfTable(table), node("default", "", ""))), "%STREAM_ID%")
}
