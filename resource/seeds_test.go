package resource

import (
	"testing"
)

// maxFuzzed is the largest text that is fuzzed. What is found in a larger one is found in a smaller one too, and much sooner.
const maxFuzzed = 4 << 10

// seeds are texts to begin with: each document by itself, so that thousands are tried in a second.
func seeds(f *testing.F) (texts [][]byte) {
	f.Helper()
	for _, text := range yamlHere(f) {
		for _, c := range split(text) {
			if len(c.text) <= maxFuzzed/4 {
				texts = append(texts, c.text)
			}
		}
	}
	return texts
}
