// Package layout holds the shape of the program: which of our packages may import which.
package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// arrows are the packages of ours that each package may import. A trailing slash stands for all packages below. Test
// helpers and internal packages may be imported by all, and cmd may import everything.
var arrows = map[string][]string{
	"docs":                {},
	"resource":            {},
	"memstore":            {"resource"},
	"memstore/":           {"resource", "memstore"},
	"adsc":                {},
	"sources":             {"resource", "memstore", "sources/guard", "sources/lastgood", "sources/transform"},
	"sources/guard":       {"resource", "memstore"},
	"sources/lastgood":    {"resource", "memstore", "sources/guard"},
	"sources/transform":   {"resource"},
	"sources/file":        {"resource", "sources", "sources/derive"},
	"sources/xds":         {"resource", "sources", "adsc"},
	"sources/sourcetest":  {"resource", "memstore", "sources", "sources/guard", "sources/registry"},
	"config":              {"resource", "server/access", "server/identity", "sources", "sources/"},
	"aggregate":           {"resource", "memstore", "aggregate/conflicts"},
	"server/xds":          {"server/xds/wire"},
	"server/xds/wire":     {},
	"aggregate/conflicts": {"resource", "memstore"},
	"server/families":     {},
	"server/identity":     {},
	"server/access":       {"resource", "server/identity", "server/xds"},
	"server/mcp":          {"resource", "memstore", "aggregate", "server/access", "server/families", "server/xds"},
	"server/envoy":        {"resource", "memstore", "aggregate", "server/families", "server/xds", "server/envoy/"},
	"server/admin": {
		"resource", "memstore", "aggregate", "aggregate/conflicts", "sources", "sources/derive", "sources/guard", "server/debug",
		"server/verify", "server/identity", "server/transport", "server/xds",
	},
	"server/debug":     {"server/xds"},
	"server/page":      {"resource", "memstore", "aggregate", "server/admin", "server/debug", "server/xds"},
	"server/verify":    {"resource"},
	"server/transport": {},

	"sources/consul/mapping": {"resource", "sources", "sources/registry"},
	"sources/consul/dial":    {"sources", "adsc", "sources/consul/judge"},
	"sources/consul/judge":   {"sources/presence"},
	"sources/vip":            {},
	"sources/derive":         {"resource", "sources"},
	"sources/presence":       {},
	"sources/registry":       {"resource", "sources", "sources/presence"},

	"sources/dubbo": {
		"resource", "sources", "adsc", "sources/presence", "sources/registry", "sources/consul", "sources/dubbo/",
	},
	"sources/dubbo/provider": {},
	"sources/dubbo/mapping":  {"resource", "sources/registry", "sources/dubbo/provider"},
	"sources/dubbo/backend":  {"sources/dubbo/provider"},
	"sources/dubbo/metadata": {"sources/dubbo/provider"},

	"sources/consul/consultest": {},
	"sources/dubbo/consul": {
		"sources", "sources/consul", "sources/consul/mapping", "sources/dubbo/backend",
		"sources/dubbo/provider",
	},
	"sources/dubbo/nacos":            {"sources/dubbo/backend", "sources/dubbo/provider", "sources/nacos/client"},
	"sources/dubbo/zookeeper":        {"sources/dubbo/backend", "sources/dubbo/provider"},
	"sources/dubbo/zookeeper/zktest": {"sources/dubbo/backend", "sources/dubbo/zookeeper"},

	"sources/nacos/client": {"sources/nacos/wire"},
	"sources/nacos/wire":   {},
	"sources/kube/mapping": {"resource", "sources", "sources/registry"},

	"sources/eureka/wire": {},

	"sources/kube": {
		"resource", "sources", "adsc", "sources/presence", "sources/registry", "sources/derive", "sources/kube/",
	},

	"server/envoy/envoytest": {"resource", "memstore"},
	"server/envoy/binary":    {"server/envoy/model"},
	"server/envoy/model":     {"resource"},
	"server/envoy/telemetry": {"resource", "server/envoy/model"},
	"server/envoy/extend":    {"resource", "server/envoy/model"},
	"server/envoy/security":  {"resource", "server/envoy/model"},
	"server/envoy/index": {
		"resource", "memstore", "server/envoy/extend", "server/envoy/model", "server/envoy/security", "server/envoy/telemetry",
	},
	"server/envoy/translate": {
		"resource", "server/xds", "server/envoy/extend", "server/envoy/model", "server/envoy/telemetry", // of server/xds its entries
	},
	"server/envoy/references": {"resource", "memstore", "server/envoy/index", "server/envoy/model"},
	"server/envoy/coverage":   {"resource", "server/envoy/model", "server/envoy/telemetry", "server/envoy/translate"},

	"sources/consulkv": {
		"resource", "memstore", "sources", "sources/consul/dial", "sources/consul/judge", "sources/presence",
		"sources/registry",
	},
}

func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "tributary/...").Output()
	require.NoError(t, err)
	seen, ofCommands := 0, 0
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		err := decoder.Decode(&pkg)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		seen++
		name := strings.TrimPrefix(pkg.ImportPath, "tributary/")
		if strings.HasPrefix(name, "cmd/internal/") {
			ofCommands++
		}
		if strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "internal/") {
			continue
		}
		allowed, ok := allowedFor(name)
		require.True(t, ok, "package %s has no place in the layout: see docs/architecture.md", name)
		for _, imp := range pkg.Imports {
			imp, ours := strings.CutPrefix(imp, "tributary/")
			require.NotEqual(t, "internal/relay", imp, "%s may not import the program", name)
			if !ours || strings.HasPrefix(imp, "internal/") {
				continue
			}
			require.True(t, matches(allowed, imp), "%s may not import %s", name, imp)
		}
	}
	require.Greater(t, seen, 10, "packages found")
	require.LessOrEqual(t, ofCommands, 5, "packages below cmd/internal")
}

func allowedFor(name string) ([]string, bool) {
	if allowed, ok := arrows[name]; ok {
		return allowed, true
	}
	for prefix, allowed := range arrows {
		if strings.HasSuffix(prefix, "/") && strings.HasPrefix(name, prefix) {
			return allowed, true
		}
	}
	if folder, found := strings.CutPrefix(name, "sources/"); found { // a source, which knows no other one
		source, _, _ := strings.Cut(folder, "/")
		return []string{
			"resource", "sources", "adsc", "sources/presence", "sources/registry", "sources/" + source + "/",
		}, true
	}
	return nil, false
}

func matches(allowed []string, name string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		return a == name || strings.HasSuffix(a, "/") && strings.HasPrefix(name, a)
	})
}
