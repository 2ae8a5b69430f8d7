package words

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNearest(t *testing.T) {
	names := []string{"hosts", "ports", "exportTo"}
	for s, want := range map[string]string{"host": "hosts", "prots": "ports", "ExportTO": "exportTo", "address": "", "x": ""} {
		assert.Equal(t, want, Nearest(s, names), s)
	}
	assert.Equal(t, 1, EditDistance("ab", "ba"))
	assert.True(t, slices.IsSorted([]int{EditDistance("", ""), EditDistance("a", ""), EditDistance("abc", "d")}))
}
