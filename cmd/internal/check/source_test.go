package check_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/check"
)

// TestDuplicateInAnyPath holds that a key which one path has twice is an error, whether or not another path has it,
// too.
func TestDuplicateInAnyPath(t *testing.T) {
	tree(t, map[string]string{"a/x.yaml": good, "b/x.yaml": good + "---\n" + good})
	for _, paths := range [][]string{{"b"}, {"b", "a"}, {"a", "b"}} {
		var linter check.Linter
		for _, p := range paths {
			require.NoError(t, linter.Path(t.Context(), p))
		}
		errs := 0
		for _, f := range linter.Findings {
			if f.Severity == check.Error && f.Rule == check.Duplicate {
				errs++
			}
		}
		require.Equal(t, 1, errs, "%v: %v", paths, linter.Findings)
		require.Len(t, linter.Findings, len(paths), "%v: %v", paths, linter.Findings)
	}
}

// TestTransforms holds that validate reports the same as the server about a source with transforms.
func TestTransforms(t *testing.T) {
	tree(t, map[string]string{
		"tributary.yaml": `configSources:
- {name: left, address: "fs://./left", transform: {include: [{namespaces: [other]}]}}
- {name: wrong, address: "fs://./wrong", transform: {hosts: [{match: "*.example", to: "{1}{1}.example"}]}}
`,
		"left/a.yaml":  strings.Replace(good, "ServiceEntry", "ServiceEntri", 1),
		"wrong/a.yaml": route("long", strings.Repeat("a", 40)+".example"),
	})
	var l check.Linter
	text(t, &l, "tributary.yaml", false)
	found := strings.Join(lines(&l), "\n")
	assert.Contains(t, found, `left/a.yaml:2:7: ServiceEntri shop/good: unknown kind "ServiceEntri"`, "it is quarantined, whatever is taken")
	assert.Contains(t, found, "wrong/a.yaml:1: VirtualService shop/long: ")
	assert.Contains(t, found, " (as it is after the transforms: hosts: ")
}

// TestPasswordsAreNotPrinted holds that the message about an unchecked source has no credentials.
func TestPasswordsAreNotPrinted(t *testing.T) {
	tree(t, map[string]string{"tributary.yaml": "configSources:\n- address: nacos://bob:s3cret@n1?kind=services\n- address: " +
		"nacos://n2?kind=services&username=bob&password=s3cret\n"})
	var l check.Linter
	skipped := text(t, &l, "tributary.yaml", false)
	require.Len(t, skipped, 2)
	require.NotContains(t, strings.Join(skipped, " "), "s3cret")
	require.Contains(t, skipped[0], "nacos://n1")
}

// TestForeign holds that ignored objects are named, and that a kind of Istio in another API group is an error.
func TestForeign(t *testing.T) {
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: shop}\n"
	mistyped := strings.Replace(good, "networking.istio.io", "network.istio.io", 1)
	tree(t, map[string]string{
		"rules/a.yaml": good + "---\n" + service, "typo/a.yaml": "\n" + mistyped,
		"tributary.yaml": "configSources:\n- {name: rules, address: \"fs://./rules\", foreignKinds: error}\n",
	})
	var linter check.Linter
	require.NoError(t, linter.Path(t.Context(), "rules"))
	require.Len(t, linter.Findings, 1)
	assert.Equal(t, check.Finding{
		Place: "rules/a.yaml:6:13", Kind: "Service", Namespace: "shop", Name: "s", Severity: check.Note, Rule: check.Foreign,
		Message: "Service of v1 is not of Istio's API, and is not served",
	}, linter.Findings[0])
	assert.Equal(t, 1, linter.Objects)
	assert.Equal(t, 1, linter.Foreign)

	linter = check.Linter{}
	require.NoError(t, linter.Path(t.Context(), "typo"))
	require.Len(t, linter.Findings, 1)
	assert.Equal(t, check.Error, linter.Findings[0].Severity)
	assert.Contains(t, linter.Findings[0].String(),
		`typo/a.yaml:2:13: ServiceEntry shop/good: unknown kind "ServiceEntry" of network.istio.io/v1: Istio's is of networking.istio.io/v1`)

	linter = check.Linter{}
	text(t, &linter, "tributary.yaml", false)
	require.Len(t, linter.Findings, 1)
	assert.Equal(t, check.Error, linter.Findings[0].Severity, "as the source has it")
}

// TestPath_Empty holds that a directory without readable files is a warning, and that ignored files are named.
func TestPath_Empty(t *testing.T) {
	tree(t, map[string]string{
		"empty/rules.yaml.j2": good, "empty/.git/a.txt": "", "full/a.yaml": good, "full/readme.md": "",
		"tributary.yaml": "configSources:\n- {name: none, address: \"fs://./empty\"}\n",
	})
	var l check.Linter
	require.NoError(t, l.Path(t.Context(), "empty"))
	assert.Equal(t, []string{"empty: warning: nothing is read from it: 1 file is there whose name does not end in .yaml, .yml or .json"},
		lines(&l))
	assert.Equal(t, []string{"empty/rules.yaml.j2"}, l.Skipped)

	l = check.Linter{}
	require.NoError(t, l.Path(t.Context(), "full"))
	assert.Empty(t, l.Findings)
	assert.Equal(t, []string{"full/readme.md"}, l.Skipped)

	l = check.Linter{}
	text(t, &l, "tributary.yaml", false)
	assert.Equal(t, []string{"tributary.yaml: warning: source none (fs://./empty): nothing is read from it"}, lines(&l))
}
