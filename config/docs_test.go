package config_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

// TestDocumentedConfigurations checks that the configurations in the documentation are right.
func TestDocumentedConfigurations(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for _, file := range []string{"../docs/failing-safely.md", "../docs/transforms.md", "../docs/limits.md"} {
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
