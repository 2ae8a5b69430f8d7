package dubbo

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSilentRegistry_ShownOnce has a registry with one list of names, for interfaces and applications.
func TestSilentRegistry_ShownOnce(t *testing.T) {
	s := &state{}
	for i := range s.lists {
		s.lists[i].failure = errors.New("no answer in 5s")
	}
	require.Equal(t, []string{"no answer in 5s"}, s.survey().problems)
}
