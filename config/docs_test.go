package config_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
	"tributary/sources/guard"
)

// TestDocumentedDefaultsOfTheGuard checks the guard's documented defaults.
func TestDocumentedDefaultsOfTheGuard(t *testing.T) {
	text, err := os.ReadFile("../docs/failing-safely.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^  (guard: .*)   # these are the defaults$`).FindSubmatch(text)
	require.Len(t, line, 2)
	c := parsed(t, "t.yaml", "configSources: [{address: 'fs:///a', "+string(line[1])+"}]")
	require.Equal(t, guard.Settings{
		Share: guard.DefaultShare, Min: new(guard.DefaultMin), Window: guard.DefaultWindow,
	}, c.ConfigSources[0].Guard.Settings())
}

// TestDocumentedConfigurations checks that the configurations in the documentation are right.
func TestDocumentedConfigurations(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for _, file := range []string{"../docs/failing-safely.md", "../docs/transforms.md", "../docs/limits.md", "../docs/security.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		blocks := block.FindAllSubmatch(text, -1)
		require.NotEmpty(t, blocks, file)
		for _, b := range blocks {
			_, err := config.Parse(file, b[1])
			require.NoError(t, err)
		}
	}
}
