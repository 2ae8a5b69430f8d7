package main

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var link = regexp.MustCompile(`\]\(([^)#\s]+)`)

// Links between the pages of a package lead to files of the package.
func TestLinksOfThePackage(t *testing.T) {
	files, err := (&release{source: ".."}).docs()
	require.NoError(t, err)
	const root = "usr/share/doc/tributary/"
	shipped := map[string]string{}
	for _, f := range files {
		shipped[f.to] = f.from
	}
	for _, name := range []string{
		"README.md", "LICENSE", "docs/config.schema.json", "docs/monitoring/rules.yaml",
		"docs/monitoring/dashboard.json",
	} {
		require.Contains(t, shipped, root+name)
	}
	for to, from := range shipped {
		if path.Ext(to) != ".md" {
			continue
		}
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			if target := match[1]; !strings.Contains(target, "://") && !strings.HasPrefix(target, "mailto:") {
				target = path.Join(path.Dir(to), target)
				_, exists := shipped[target]
				for file := range shipped {
					exists = exists || strings.HasPrefix(file, target+"/")
				}
				assert.True(t, exists, "%s links to %s", from, match[1])
			}
		}
	}
}
