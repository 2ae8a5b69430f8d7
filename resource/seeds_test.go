package resource

import (
	"testing"
)

// maxFuzzed is the size of the largest fuzzed text. A smaller text finds the same faults, and much sooner.
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
