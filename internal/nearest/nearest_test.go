package nearest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestName(t *testing.T) {
	names := []string{"hosts", "ports", "exportTo"}
	for s, want := range map[string]string{"host": "hosts", "prots": "ports", "ExportTO": "exportTo", "address": "", "x": ""} {
		assert.Equal(t, want, Name(s, names), s)
	}
	assert.Equal(t, 1, Distance("ab", "ba"))
	assert.True(t, slices.IsSorted([]int{Distance("", ""), Distance("a", ""), Distance("abc", "d")}))
}
