package access

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSubject_ManyNames matches a subject of thousands of names, which one certificate may have, with a pattern of
// several stars. An exponential search would not end.
func TestSubject_ManyNames(t *testing.T) {
	subject := strings.Repeat("OU=a,", 3000) + "O=Evil"
	require.True(t, matchSubject("*,OU=a,*", subject))
	require.True(t, matchSubject("*,OU=a,*,O=Evil", subject))
	require.False(t, matchSubject("*,OU=a,*,OU=a,*,OU=a,*,OU=a,*,O=Example", subject))
}
